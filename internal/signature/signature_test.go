package signature

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

var (
	secretA = []byte("0123456789abcdef-A")
	secretB = []byte("0123456789abcdef-B")
	now     = time.Unix(1767225600, 0)
	body    = []byte(`{"v":1,"queue":"mail"}`)
)

func signed(secret []byte, at time.Time) http.Header {
	h := http.Header{}
	Sign(secret, body, at).Set(h)
	return h
}

// The vector was made by another program:
//
//	printf '1767225600.{"v":1,"queue":"mail"}' | openssl dgst -sha256 -hmac 0123456789abcdef-A
func TestSign_IsWhatOpenSSLMakes(t *testing.T) {
	got := Sign(secretA, body, now)
	if want := "1767225600"; got.Timestamp != want {
		t.Errorf("timestamp %q, want %q", got.Timestamp, want)
	}
	if want := "v1=573341de7efa8d442631e7cea6c7ff228017fe218a315c18db8051cc9a9e30b3"; got.Signature != want {
		t.Errorf("signature %q, want %q", got.Signature, want)
	}
}

func TestVerify_TakesEitherSecretDuringRotation(t *testing.T) {
	for _, s := range [][]byte{secretA, secretB} {
		if err := Verify([][]byte{secretA, secretB}, signed(s, now), body, now, 0); err != nil {
			t.Error(err)
		}
	}
}

func TestVerify_TakesOneMatchAmongSeveral(t *testing.T) {
	h := signed(secretA, now)
	h.Set(SignatureHeader, "v9=future, "+Sign(secretB, body, now).Signature+", "+h.Get(SignatureHeader))
	if err := Verify([][]byte{secretA}, h, body, now, 0); err != nil {
		t.Error(err)
	}
}

func TestVerify_AllowsTheToleranceAndNoMore(t *testing.T) {
	for _, c := range []struct {
		off  time.Duration
		want error
	}{
		{Tolerance, nil}, {-Tolerance, nil},
		{Tolerance + time.Second, ErrStale}, {-Tolerance - time.Second, ErrStale},
	} {
		err := Verify([][]byte{secretA}, signed(secretA, now), body, now.Add(c.off), 0)
		if !errors.Is(err, c.want) {
			t.Errorf("off by %s: %v, want %v", c.off, err, c.want)
		}
	}
}

func TestVerify_Refuses(t *testing.T) {
	with := func(name string, values ...string) http.Header {
		h := signed(secretA, now)
		h.Del(name)
		for _, v := range values {
			h.Add(name, v)
		}
		return h
	}
	good := Sign(secretA, body, now).Signature
	cases := []struct {
		name    string
		header  http.Header
		body    []byte
		secrets [][]byte
		want    error
	}{
		{name: "another body", header: signed(secretA, now), body: []byte(`{"v":1,"queue":"mall"}`), want: ErrMismatch},
		{name: "another secret", header: signed(secretB, now), want: ErrMismatch},
		{name: "another timestamp", header: with(TimestampHeader, "1767225601"), want: ErrMismatch},
		{name: "the same second spelt otherwise", header: with(TimestampHeader, "01767225600"), want: ErrMismatch},
		{name: "no timestamp", header: with(TimestampHeader), want: ErrMissing},
		{name: "no signature", header: with(SignatureHeader), want: ErrMissing},
		{name: "empty timestamp", header: with(TimestampHeader, ""), want: ErrMalformed},
		{name: "signed timestamp", header: with(TimestampHeader, "+1767225600"), want: ErrMalformed},
		{name: "huge timestamp", header: with(TimestampHeader, "999999999999999999999"), want: ErrMalformed},
		{name: "two timestamps", header: with(TimestampHeader, "1767225600", "1767225600"), want: ErrMalformed},
		{name: "two signature headers", header: with(SignatureHeader, good, good), want: ErrMalformed},
		{name: "unknown version only", header: with(SignatureHeader, "v2"+good[2:]), want: ErrMalformed},
		{name: "cut short", header: with(SignatureHeader, good[:len(good)-2]), want: ErrMalformed},
		{name: "not hex", header: with(SignatureHeader, "v1="+strings.Repeat("zz", 32)), want: ErrMalformed},
		{name: "a flood of signatures", header: with(SignatureHeader, strings.Repeat(good+",", 100)+good), want: ErrMalformed},
		{name: "no secret configured", header: signed(secretA, now), secrets: [][]byte{}, want: ErrNoSecret},
		{name: "an empty secret, signed with it", header: signed(nil, now), secrets: [][]byte{nil, {}}, want: ErrNoSecret},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.body == nil {
				c.body = body
			}
			if c.secrets == nil {
				c.secrets = [][]byte{secretA}
			}
			if err := Verify(c.secrets, c.header, c.body, now, 0); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestCheckSecret_TellsTheLengthOnly(t *testing.T) {
	err := CheckSecret([]byte("hunter2"))
	if !errors.Is(err, ErrShortSecret) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "7 bytes") {
		t.Errorf("got %v", err)
	}
	if err := CheckSecret(secretA); err != nil {
		t.Error(err)
	}
}

// FuzzVerify: whatever the headers hold, nothing but a signature made with the
// secret passes, and nothing panics.
func FuzzVerify(f *testing.F) {
	good := Sign(secretA, body, now)
	f.Add(good.Timestamp, good.Signature, body)
	f.Add(good.Timestamp, "v1=00,"+good.Signature, body)
	f.Add("", "", []byte{})
	f.Add("1e9", "v1=", []byte(nil))
	f.Add("1767225600", "=,=,=", []byte("x"))
	f.Fuzz(func(t *testing.T, timestamp, sig string, b []byte) {
		h := http.Header{TimestampHeader: {timestamp}, SignatureHeader: {sig}}
		if err := Verify([][]byte{secretA}, h, b, now, 0); err != nil {
			return
		}
		want := mac(secretA, timestamp, b)
		given, err := parseSignatures(sig)
		if err != nil {
			t.Fatalf("passed and does not parse: %v", err)
		}
		for _, g := range given {
			if bytes.Equal(g, want) {
				return
			}
		}
		t.Fatalf("passed without a signature of the secret: %q %q", timestamp, sig)
	})
}
