package effects

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"edda/internal/files"
)

// Secrets finds the values of secret.NAME: in the environment's EDDA_SECRET_NAME, else in the file
// that EDDA_SECRET_NAME_FILE names, else in the file NAME in Dir. It reads files at every use, so
// that a secret can be rotated. Values are never logged. The zero value uses the environment only.
type Secrets struct {
	Dir string
	// Environ replaces os.LookupEnv.
	Environ func(name string) (string, bool)
}

// secretPrefix begins the environment variable of a secret.
const secretPrefix = "EDDA_SECRET_"

// Get finds one secret. It removes the line end at the end of a file.
func (s Secrets) Get(name string) (string, error) {
	if !secretName(name) {
		return "", fmt.Errorf("secret %q: not a name", name)
	}
	lookup := s.Environ
	if lookup == nil {
		lookup = os.LookupEnv
	}
	if v, found := lookup(secretPrefix + name); found {
		return v, nil
	}
	if path, found := lookup(secretPrefix + name + "_FILE"); found {
		return readSecret(name, path)
	}
	if s.Dir == "" {
		return "", missing(name)
	}
	return readSecret(name, filepath.Join(s.Dir, name))
}

func missing(name string) error {
	return fmt.Errorf("secret %s is not set: give it as %s%s, or as a file", name, secretPrefix, name)
}

func readSecret(name, path string) (string, error) {
	b, err := files.Read(path, files.Most)
	if errors.Is(err, fs.ErrNotExist) {
		return "", missing(name)
	}
	if err != nil {
		return "", fmt.Errorf("secret %s: %w", name, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// secretName reports whether a name can be an environment variable and a file.
func secretName(name string) bool {
	if name == "" {
		return false
	}
	return strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// all finds the named secrets; nil if there are none.
func (s Secrets) all(names []string) (map[string]any, error) {
	if len(names) == 0 {
		return nil, nil
	}
	out := make(map[string]any, len(names))
	for _, name := range names {
		v, err := s.Get(name)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}
