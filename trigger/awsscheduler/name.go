package awsscheduler

import (
	"crypto/sha256"
	"encoding/base32"
	"io"
	"strings"
)

// The service's bound for names and tokens, and the length of a digest.
const (
	maxName   = 64
	digestLen = 26
)

var base32Lower = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// digest of texts: 128 bits in letters and digits. It tells apart "ab", "c" from "a", "bc".
func digest(texts ...string) string {
	h := sha256.New()
	for _, t := range texts {
		_, _ = io.WriteString(h, t+"\x00")
	}
	return base32Lower.EncodeToString(h.Sum(nil))[:digestLen]
}

// scheduleName is the same for the same alarm and another for any other. The readable part may be cut;
// the digest is of the whole, so that long names stay apart.
func scheduleName(prefix, queueName, alarm string) string {
	readable := strings.Map(func(r rune) rune {
		if groupName.MatchString(string(r)) {
			return r
		}
		return '-'
	}, prefix+"-"+queueName)
	return readable[:min(len(readable), maxName-1-digestLen)] + "-" + digest(prefix, queueName, alarm)
}
