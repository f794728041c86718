package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAFileIsReadUpToABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := Read(path, 5); err != nil || string(text) != "12345" {
		t.Errorf("%q %v", text, err)
	}
	for name, most := range map[string]int64{path: 4, "/dev/zero": Most} {
		if text, err := Read(name, most); err == nil || text != nil || !strings.Contains(err.Error(), name+" has more than") {
			t.Errorf("%s: %d bytes, %v", name, len(text), err)
		}
	}
	if err := os.Truncate(path, Most+1); err != nil {
		t.Fatal(err)
	}
	if _, err := KeyPair(os.DevNull, path); err == nil || !strings.Contains(err.Error(), path+" has more than") {
		t.Errorf("%v", err)
	}
	if _, err := KeyPair(path, os.DevNull); err == nil || !strings.Contains(err.Error(), path+" has more than") {
		t.Errorf("%v", err)
	}
	if _, err := Read(path+"x", 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}
