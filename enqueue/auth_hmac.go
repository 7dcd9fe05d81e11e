package enqueue

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/dozequeue/doze/internal/signature"
)

// copyGood is how long a signed request may be good from when it is first seen: its timestamp may be
// ahead as well as behind.
const copyGood = 2 * signature.Tolerance

// HMAC is an [Auth] by a signature over time and body, which a producer makes with a secret that
// is never sent:
//
//	Doze-Timestamp: 1767225600
//	Doze-Signature: v1=<hex of HMAC-SHA256(secret, timestamp "." body)>
//
// A request is good for five minutes before and after its timestamp, and so is a copy of it.
// Since path, method and other headers are not signed, it may only enqueue, and each job needs a
// key in the body.
//
// The name is for logs. One secret is required, of 16 bytes or more; during a rotation give
// the new one and the old one.
func HMAC(name string, secrets ...[]byte) (Auth, error) {
	if len(secrets) == 0 {
		return nil, fmt.Errorf("signed requests: %w", signature.ErrNoSecret)
	}
	for i, secret := range secrets {
		if err := signature.CheckSecret(secret); err != nil {
			return nil, fmt.Errorf("signed requests: secret %d: %w", i+1, err)
		}
	}
	return AuthFunc(func(r *http.Request) (Caller, error) {
		if r.Header.Get(signature.SignatureHeader) == "" {
			return Caller{}, ErrUnauthorized // no need to read the body of a stranger
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return Caller{}, bodyError(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if err := signature.Verify(secrets, r.Header, body, time.Now(), 0); err != nil {
			return Caller{}, ErrUnauthorized
		}
		return Caller{Name: name, Signed: true}, nil
	}), nil
}
