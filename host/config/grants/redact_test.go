package grants

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"
)

const (
	awkward = `s3cr3t/+ "ä"&`
	token   = "tok_4f9aB2c7D1e8F6aB0c9D3e7F"
	pemKey  = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAfalsefalsefalse\n-----END PRIVATE KEY-----\n"
	dsn     = "postgres://app:h0rse-battery@db.internal:5432/orders?sslmode=require"
	hook    = "https://hooks.example.com/services/T0001/B0002/abcdefghijklmnop"
)

func redactor() *Redactor {
	return NewRedactor(Named{"A", awkward}, Named{"LONG", awkward + " and more"}, Named{"SHORT", "abc"}, Named{"SIX", "sixsix"}, Named{"PEM", pemKey},
		Named{"TOKEN", token}, Named{"DSN", dsn}, Named{"HOOK", hook},
		Named{"BASIC", base64.StdEncoding.EncodeToString([]byte("cron:0pen-sesame"))})
}

func TestRedactor(t *testing.T) {
	t.Parallel()
	quoted, err := json.Marshal(awkward)
	if err != nil {
		t.Fatal(err)
	}
	r := redactor()
	for text, want := range map[string]string{
		"":                            "",
		"nothing":                     "nothing",
		"abc stays":                   "abc stays",
		"x" + awkward + "y":           "x[secret A]y",
		awkward + awkward:             "[secret A][secret A]",
		awkward + " and more":         "[secret LONG]",
		awkward + " and m":            "[secret LONG]",
		string(quoted):                `"[secret A]"`,
		fmt.Sprintf("%q", awkward):    `"[secret A]"`,
		fmt.Sprintf("%+q", awkward):   `"[secret A]"`,
		url.QueryEscape(awkward):      "[secret A]",
		"/" + url.PathEscape(awkward): "/[secret A]",
		strings.ToLower(url.QueryEscape(awkward)):   "[secret A]",
		"sixsix sixsi SixSix":                       "[secret SIX] sixsi [secret SIX]",
		"key MC4CAQAwBQYDK2VwBCIEIAfalsefalsefalse": "key [secret PEM]",
		"key MC4CAQAwBQYDK2VwBCI…":                  "key [secret PEM]…",
		"key MC4CAQAwBQYDK2V, which is 15 bytes":    "key MC4CAQAwBQYDK2V, which is 15 bytes",
		"-----BEGIN PRIVATE KEY-----":               "-----BEGIN PRIVATE KEY-----",
		// Parts.
		"got " + token:                        "got [secret TOKEN]",
		"got " + token[:8] + "…":              "got [secret TOKEN]…",
		"got …" + token[len(token)-8:]:        "got …[secret TOKEN]",
		"got " + token[5:20] + " in it":       "got [secret TOKEN] in it",
		"got " + token[:7] + "…":              "got " + token[:7] + "…",
		strings.ToUpper(token):                "[secret TOKEN]",
		token[:12] + "\r\n" + token[12:]:      "[secret TOKEN]\r\n[secret TOKEN]",
		token + "x" + token[:9]:               "[secret TOKEN]x[secret TOKEN]",
		"login of cron: 0pen-sesame is wrong": "login of cron: [secret BASIC] is wrong",
		"0pen-ses":                            "[secret BASIC]",
		// What is in many texts is no part of a secret.
		dsn:                                     "[secret DSN]",
		"postgres://other@db.internal:5432":     "postgres://other@db.internal:5432",
		"password h0rse-battery of app":         "password [secret DSN] of app",
		"connect: no route to db.internal:5432": "connect: no route to db.internal:5432",
		"404 of https://hooks.example.com/services/T0001/B...": "404 of https://hooks.example.com/[secret HOOK]...",
		"Get https://hooks.example.com/health":                 "Get https://hooks.example.com/health",
	} {
		if got := r.Redact(text); got != want {
			t.Errorf("%q: %q, expected %q", text, got, want)
		}
	}
	// Whatever is before and after it in what is encoded.
	r = NewRedactor(Named{"A", awkward})
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		for before := range 5 {
			for after := range 5 {
				text := e.EncodeToString([]byte(strings.Repeat("u", before) + awkward + strings.Repeat("v", after)))
				if got := r.Redact(text); !strings.Contains(got, "[secret A]") || len(got) > len("[secret A]")+16 {
					t.Errorf("%d before, %d after: %s of %s", before, after, got, text)
				}
			}
		}
	}
	if r := NewRedactor(Named{"SHORT", "abc"}); r != nil || r.Redact("abc") != "abc" {
		t.Error("a redactor of nothing")
	}
}

// TestRedactedParts looks for every part of long and short secrets, wherever it stands.
func TestRedactedParts(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	letters := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"[random.IntN(62)]
		}
		return string(b)
	}
	for _, c := range []struct{ size, least int }{{6, 6}, {7, 7}, {8, 8}, {9, 8}, {40, 8}, {longSecret, minPart}, {longSecret + 1, minLongPart}, {MaxSecret, minLongPart}} {
		secret := letters(c.size)
		r := NewRedactor(Named{"S", secret})
		for range 500 {
			size := c.least + random.IntN(min(c.size, 50)-min(c.least, c.size)+1)
			from := random.IntN(c.size - size + 1)
			before, after := strings.Repeat("-", random.IntN(20)), strings.Repeat("-", random.IntN(20))
			if got, want := r.Redact(before+secret[from:from+size]+after), before+"[secret S]"+after; got != want {
				t.Fatalf("of %d bytes those from %d to %d: %q", c.size, from, from+size, got)
			}
		}
		if c.least < c.size {
			part := secret[:c.least-1]
			if got := r.Redact("-" + part + "-"); got != "-"+part+"-" {
				t.Errorf("of %d bytes %d are replaced", c.size, c.least-1)
			}
		}
	}
	// The same bytes at many places of a secret.
	r := NewRedactor(Named{"S", strings.Repeat("x", 4000)}, Named{"T", strings.Repeat("ab", 300)})
	for text, want := range map[string]string{strings.Repeat("x", 4000): "[secret S]", strings.Repeat("ab", 300): "[secret T]"} {
		if got := r.Redact(text); got != want {
			t.Errorf("%.100q", got)
		}
	}
}

// BenchmarkNewRedactor is for the secret that takes longest: many short lines.
func BenchmarkNewRedactor(b *testing.B) {
	var lines strings.Builder
	for i := 0; lines.Len() < MaxSecret-20; i++ {
		fmt.Fprintf(&lines, "%017d\n", i)
	}
	for b.Loop() {
		NewRedactor(Named{"S", lines.String()})
	}
}

// BenchmarkRedact is a line that has no secret, for a job with few secrets and for one with the
// longest that there can be.
func BenchmarkRedact(b *testing.B) {
	line := strings.Repeat("2026-11-23T03:00:00Z copied 1200 rows of table orders to the archive; ", 4)
	random := rand.New(rand.NewPCG(1, 2))
	long := make([]byte, MaxSecret*3/4)
	for i := range long {
		long[i] = byte(random.Uint32())
	}
	for name, r := range map[string]*Redactor{"few": redactor(), "longest": NewRedactor(Named{"S", base64.StdEncoding.EncodeToString(long)})} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				r.Redact(line)
			}
		})
	}
}
