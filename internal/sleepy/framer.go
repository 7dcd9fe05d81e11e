package sleepy

import "encoding/binary"

// framer follows the messages of one direction of a connection without keeping them: a type byte, a length that
// counts itself, and a body.
type framer struct {
	header [5]byte
	have   int // bytes of the header
	left   int // bytes of the body to come
	first  bool
}

// feed reads a piece of the stream. It calls message at the end of each message's header, and status with
// the first byte of the body of a ReadyForQuery.
func (f *framer) feed(b []byte, message func(kind byte), status func(byte)) {
	for len(b) > 0 {
		if f.left > 0 {
			if f.first && f.header[0] == 'Z' {
				status(b[0])
			}
			f.first = false
			n := min(f.left, len(b))
			f.left -= n
			b = b[n:]
			continue
		}
		n := copy(f.header[f.have:], b)
		f.have += n
		b = b[n:]
		if f.have == len(f.header) {
			f.have = 0
			f.left = max(int(binary.BigEndian.Uint32(f.header[1:]))-4, 0)
			f.first = true
			message(f.header[0])
		}
	}
}
