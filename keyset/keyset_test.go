package keyset

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOldKeysDecryptAndTheNewestEncrypts(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset.json")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	first, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	old, err := first.Encrypt([]byte("secret"), []byte("place"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Rotate(path); err != nil {
		t.Fatal(err)
	}
	second, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := second.Decrypt(old, []byte("place")); err != nil || string(plain) != "secret" {
		t.Errorf("the old key: %q %v", plain, err)
	}
	fresh, err := second.Encrypt([]byte("secret"), []byte("place"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Decrypt(fresh, []byte("place")); err == nil {
		t.Error("the old key still encrypts")
	}
	if again, err := second.Encrypt([]byte("secret"), []byte("place")); err != nil || bytes.Equal(again, fresh) {
		t.Errorf("the same twice: %v", err)
	}
	if _, err := second.Decrypt(fresh, []byte("elsewhere")); err == nil {
		t.Error("it opens in another place")
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
}

func TestCreateNeverOverwrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keyset.json")
	if err := Create(path); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(path)
	if err := Create(path); err == nil {
		t.Error("created twice")
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("it changed")
	}
}

func TestOtherFilesAreRefusedAndNotQuoted(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty": "", "json": `{"key":[{"keyData":"topsecret"}]}`, "text": "topsecret", "no keys": "{}"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || strings.Contains(err.Error(), "topsecret") {
			t.Errorf("%s: %v", name, err)
		}
		if err := Rotate(path); err == nil {
			t.Errorf("%s is rotated", name)
		}
	}
	if _, err := Open(filepath.Join(dir, "missing")); err == nil {
		t.Error("a missing file is a keyset")
	}
}

// BenchmarkKeyset encrypts and decrypts a value of 1 KiB, and reports its growth.
func BenchmarkKeyset(b *testing.B) {
	path := filepath.Join(b.TempDir(), "keyset.json")
	if err := Create(path); err != nil {
		b.Fatal(err)
	}
	a, err := Open(path)
	if err != nil {
		b.Fatal(err)
	}
	plain, place := make([]byte, 1024), make([]byte, 40)
	sealed, err := a.Encrypt(plain, place)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("encrypt", func(b *testing.B) {
		for b.Loop() {
			if _, err := a.Encrypt(plain, place); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(sealed)-len(plain)), "B/value")
	})
	b.Run("decrypt", func(b *testing.B) {
		for b.Loop() {
			if _, err := a.Decrypt(sealed, place); err != nil {
				b.Fatal(err)
			}
		}
	})
}
