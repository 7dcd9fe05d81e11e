package queue

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever a panic says, what is stored of it fits a text column.
func FuzzStorable(f *testing.F) {
	for _, seed := range []string{"", "plain", "nul \x00", "\xff\xfe", strings.Repeat("€", MaxError), strings.Repeat("\x00", MaxError), "\xe2\x82", strings.Repeat("a", MaxError-1) + "€", strings.Repeat("😀", MaxError/4+1)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := storable(text)
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) || len(got) > MaxError {
			t.Errorf("storable(%.40q…) is %d bytes, valid %v", text, len(got), utf8.ValidString(got))
		}
		if utf8.ValidString(text) && !strings.ContainsRune(text, 0) && len(text) <= MaxError && got != text {
			t.Errorf("storable changed %q to %q", text, got)
		}
		if storable(got) != got {
			t.Errorf("storable of what is stored is not the same")
		}
	})
}
