package enqueue

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/dozequeue/doze/queue"
)

// APIKey lets the holder of a secret in, who sends it as "Authorization: Bearer <secret>".
type APIKey struct {
	// Name of the holder, for logs.
	Name string
	// Hash is the SHA-256 of the secret. The secret itself is stored nowhere.
	Hash [sha256.Size]byte
	// Queues and Kinds that the holder may use. None: all.
	Queues, Kinds []string
}

// Keys is an [Auth] by API keys. Without any nobody is let in.
type Keys []APIKey

// NewKey makes an API key: a secret of 32 random bytes, in 43 characters that fit a URL, to be shown
// once, and its SHA-256 in hex, to be configured: see [ParseKeys].
func NewKey() (secret, hash string) {
	var random [32]byte
	_, _ = rand.Read(random[:]) // never fails
	secret = base64.RawURLEncoding.EncodeToString(random[:])
	sum := sha256.Sum256([]byte(secret))
	return secret, hex.EncodeToString(sum[:])
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// ParseKeys reads keys as a setting holds them: parted by commas, each as
//
//	name:sha256hex[:queues=a|b][:kinds=x|y]
//
// Without queues or kinds the holder may use all of them. Errors tell which key is
// wrong by its place, counted from 1, and none of its text but the name.
func ParseKeys(text string) (Keys, error) {
	var keys Keys
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	for i, part := range strings.Split(text, ",") {
		key, err := parseKey(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("API key %d: %w", i+1, err)
		}
		for j, other := range keys {
			if other.Name == key.Name || other.Hash == key.Hash {
				return nil, fmt.Errorf("API key %d: the same name or hash as key %d; give each holder a key of its own", i+1, j+1)
			}
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func parseKey(text string) (APIKey, error) {
	var key APIKey
	name, rest, _ := strings.Cut(text, ":")
	if !keyName.MatchString(name) {
		return key, fmt.Errorf("want name:sha256hex, the name of 1 to 64 letters, digits and . _ - (ASCII)")
	}
	key.Name = name
	hash, rest, limited := strings.Cut(rest, ":")
	sum, err := hex.DecodeString(hash)
	if err != nil || len(sum) != len(key.Hash) {
		return key, fmt.Errorf("%s: want the secret's SHA-256, %d hex digits, after the name", name, 2*len(key.Hash))
	}
	copy(key.Hash[:], sum)
	if !limited {
		return key, nil
	}
	// A kind may have colons in it, so the last list has the rest.
	queues, kinds := "", ""
	switch {
	case strings.HasPrefix(rest, "queues="):
		queues, kinds, limited = strings.Cut(strings.TrimPrefix(rest, "queues="), ":kinds=")
		if key.Queues, err = parseList(queues, queue.CheckQueue); err != nil {
			return key, fmt.Errorf("%s: queues: %w", name, err)
		}
		if !limited {
			return key, nil
		}
	case strings.HasPrefix(rest, "kinds="):
		kinds = strings.TrimPrefix(rest, "kinds=")
	default:
		return key, fmt.Errorf("%s: want queues=a|b, then kinds=x|y, or nothing after the hash", name)
	}
	if key.Kinds, err = parseList(kinds, queue.CheckKind); err != nil {
		return key, fmt.Errorf("%s: kinds: %w", name, err)
	}
	return key, nil
}

func parseList(text string, check func(string) error) ([]string, error) {
	names := strings.Split(text, "|")
	for _, name := range names {
		if err := check(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// Authenticate looks a bearer token up among the keys.
func (k Keys) Authenticate(r *http.Request) (Caller, error) {
	values := r.Header.Values("Authorization")
	if len(values) != 1 {
		return Caller{}, ErrUnauthorized
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return Caller{}, ErrUnauthorized
	}
	hash := sha256.Sum256([]byte(strings.TrimSpace(token)))
	found := -1
	for i := range k { // all of them, so that the time taken tells nothing
		if subtle.ConstantTimeCompare(hash[:], k[i].Hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return Caller{}, ErrUnauthorized
	}
	return Caller{Name: k[found].Name, Queues: k[found].Queues, Kinds: k[found].Kinds}, nil
}
