package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Tolerance is how far the clock of the sender may be from the receiver's, and
// so how long a copied request stays good.
const Tolerance = 5 * time.Minute

// maxSignatures bounds the work that one request can ask for.
const maxSignatures = 8

// What [Verify] and [CheckSecret] may find. All but ErrNoSecret and
// ErrShortSecret are the caller's fault: answer 401 and do not say which.
var (
	ErrNoSecret    = errors.New("signature: no secret to check with")
	ErrShortSecret = errors.New("signature: secret is too short")
	ErrMissing     = errors.New("signature: request is not signed")
	ErrMalformed   = errors.New("signature: header is malformed")
	ErrStale       = errors.New("signature: timestamp is too far from now")
	ErrMismatch    = errors.New("signature: no signature matches")
)

// Verify checks that a request with this header and body was signed with one of
// the secrets, no further than tolerance from now. Zero tolerance means
// [Tolerance]. During a rotation give the new secret and the old one; an empty
// secret among them is passed over, since anybody could sign with it.
//
// The error is one of this package's, wrapped with what was wrong, and holds
// neither secrets nor the body.
func Verify(secrets [][]byte, header http.Header, body []byte, now time.Time, tolerance time.Duration) error {
	if tolerance == 0 {
		tolerance = Tolerance
	}
	timestamp, at, given, err := parse(header)
	if err != nil {
		return err
	}
	if off := now.Sub(at).Abs(); off > tolerance {
		return fmt.Errorf("%w: off by %s, allowed %s: check the sender's clock", ErrStale, off.Round(time.Second), tolerance)
	}
	usable, matched := 0, false
	for _, secret := range secrets {
		if len(secret) == 0 {
			continue
		}
		usable++
		want := mac(secret, timestamp, body)
		for _, g := range given {
			// No early end: the time taken does not tell which secret matched.
			if hmac.Equal(want, g) {
				matched = true
			}
		}
	}
	switch {
	case usable == 0:
		return ErrNoSecret
	case !matched:
		return ErrMismatch
	}
	return nil
}

// parse reads both headers. The timestamp is kept as text, as the text is what
// was signed.
func parse(header http.Header) (timestamp string, at time.Time, given [][]byte, err error) {
	timestamps, signatures := header.Values(TimestampHeader), header.Values(SignatureHeader)
	if len(timestamps) == 0 {
		return "", at, nil, fmt.Errorf("%w: want %s", ErrMissing, TimestampHeader)
	}
	if len(signatures) == 0 {
		return "", at, nil, fmt.Errorf("%w: want %s", ErrMissing, SignatureHeader)
	}
	if len(timestamps) > 1 || len(signatures) > 1 {
		return "", at, nil, fmt.Errorf("%w: each may be given once", ErrMalformed)
	}
	timestamp = timestamps[0]
	seconds, err := parseSeconds(timestamp)
	if err != nil {
		return "", at, nil, err
	}
	given, err = parseSignatures(signatures[0])
	if err != nil {
		return "", at, nil, err
	}
	return timestamp, time.Unix(seconds, 0), given, nil
}

// parseSeconds takes plain digits only; 11 of them reach the year 5138.
func parseSeconds(s string) (int64, error) {
	if len(s) == 0 || len(s) > 11 || strings.Trim(s, "0123456789") != "" {
		return 0, fmt.Errorf("%w: %s: want seconds since 1970 in digits", ErrMalformed, TimestampHeader)
	}
	return strconv.ParseInt(s, 10, 64)
}

func parseSignatures(s string) ([][]byte, error) {
	var found [][]byte
	for i, part := range strings.Split(s, ",") {
		if i == maxSignatures {
			return nil, fmt.Errorf("%w: %s: more than %d signatures", ErrMalformed, SignatureHeader, maxSignatures)
		}
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%w: %s: want %s=<hex>", ErrMalformed, SignatureHeader, version)
		}
		if name != version {
			continue
		}
		sum, err := hex.DecodeString(value)
		if err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("%w: %s: want %d hex digits after %s=", ErrMalformed, SignatureHeader, 2*sha256.Size, version)
		}
		found = append(found, sum)
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%w: %s: no %s signature", ErrMalformed, SignatureHeader, version)
	}
	return found, nil
}
