package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// The headers of a signed request.
const (
	TimestampHeader = "Doze-Timestamp"
	SignatureHeader = "Doze-Signature"
)

// MinSecret is the least number of bytes in a secret, 16: a shorter one could
// be guessed from one request that was seen.
const MinSecret = 16

// version is the only scheme there is.
const version = "v1"

// Header is what a signed request carries besides its body.
type Header struct {
	Timestamp string // for [TimestampHeader]: seconds since 1970, decimal
	Signature string // for [SignatureHeader]: "v1=" and 64 hex digits
}

// Set puts both values into h, in place of any that are there.
func (s Header) Set(h http.Header) {
	h.Set(TimestampHeader, s.Timestamp)
	h.Set(SignatureHeader, s.Signature)
}

// Sign signs body with secret as of now. The secret is not checked: see
// [CheckSecret].
func Sign(secret, body []byte, now time.Time) Header {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	return Header{
		Timestamp: timestamp,
		Signature: version + "=" + hex.EncodeToString(mac(secret, timestamp, body)),
	}
}

// CheckSecret refuses a secret shorter than [MinSecret]. The error tells its
// length and never its text.
func CheckSecret(secret []byte) error {
	if len(secret) < MinSecret {
		return fmt.Errorf("%w: %d bytes, want at least %d: make one with `openssl rand -hex 32`",
			ErrShortSecret, len(secret), MinSecret)
	}
	return nil
}

func mac(secret []byte, timestamp string, body []byte) []byte {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(timestamp))
	m.Write([]byte{'.'})
	m.Write(body)
	return m.Sum(nil)
}
