package node

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edda/access"
)

func TestTheFileOfActorTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "actors")
	write(t, file, "# who may call\n"+access.Hash("edda_secret")+" 1001\na-token-for-development 7\n")
	got, err := readActorTokens(file)
	if err != nil || got.hashes[sha256.Sum256([]byte("edda_secret"))] != 1001 || len(got.hashes) != 1 || got.plain["a-token-for-development"] != 7 || len(got.plain) != 1 {
		t.Errorf("%+v %v", got, err)
	}
	for name, text := range map[string]string{
		"a hash too short":       "sha256:abcd 7",
		"a hash too long":        access.Hash("x") + "00 7",
		"no actor":               access.Hash("x"),
		"actor 0":                access.Hash("x") + " 0",
		"an actor too large":     access.Hash("x") + " 4294967296",
		"nothing":                "# nobody\n",
		"two actors of one":      access.Hash("secret-of-two") + " 1\n" + access.Hash("secret-of-two") + " 2",
		"two actors of one text": access.Hash("secret-of-two") + " 1\nsecret-of-two 2",
	} {
		write(t, file, text)
		if got, err := readActorTokens(file); err == nil || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), access.Hash("x")[10:]) {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
	large(t, file, mostActorTokens+1)
	if _, err := readActorTokens(file); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a file without an end: %v", err)
	}
	if _, err := ClientTLS(file, file, ""); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a certificate without an end: %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// large makes a file of so many bytes, that takes no room.
func large(t *testing.T, path string, bytes int64) {
	t.Helper()
	if err := os.Truncate(path, bytes); err != nil {
		t.Fatal(err)
	}
}
