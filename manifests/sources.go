package manifests

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edda/internal/files"
)

// Source is a file as it is sent to another machine.
type Source struct {
	Name    string // with slashes, and local
	Content []byte
}

// descriptions are the endings of the files that gRPC effects read, beside their manifest.
var descriptions = []string{".proto", ".pb", ".binpb", ".protoset"}

func isDescription(name string) bool { return slices.Contains(descriptions, filepath.Ext(name)) }

// ErrNoManifest refuses a file that another machine would not read among manifests.
var ErrNoManifest = errors.New("want manifests, *.yaml or *.yml but for " + ConfigFile)

// Sources reads what another machine needs to run the manifests at the paths: the files that [ParseFiles] reads, and
// the descriptions of gRPC services in the folders (*.proto, *.pb, *.binpb, *.protoset). A name is the path as it was
// given. If that leads out of the working folder, the name begins with the last part of the path. All files together may
// have most bytes.
func Sources(most int, paths ...string) ([]Source, error) {
	var out []Source
	size := 0
	for _, path := range paths {
		found, err := sourcesAt(path)
		if err != nil {
			return nil, err
		}
		base := filepath.Clean(path)
		if !filepath.IsLocal(base) {
			base = filepath.Base(base)
			if abs, err := filepath.Abs(path); err == nil {
				base = filepath.Base(abs) // of .., for example
			}
		}
		for _, name := range found {
			rel, err := filepath.Rel(path, name)
			if err != nil {
				return nil, fmt.Errorf("read manifests: %w", err)
			}
			content, _, err := files.Regular(name, int64(most))
			if err != nil {
				return nil, fmt.Errorf("read manifests: %w", err)
			}
			if len(content) == 0 {
				continue // it says nothing
			}
			s := Source{filepath.ToSlash(filepath.Join(base, rel)), content}
			if i := slices.IndexFunc(out, func(o Source) bool { return o.Name == s.Name }); i < 0 {
				out, size = append(out, s), size+len(content)
			} else if !bytes.Equal(out[i].Content, content) {
				return nil, fmt.Errorf("read manifests: two files are named %s there: name the folder that has both", s.Name)
			}
			if size > most {
				return nil, fmt.Errorf("read manifests: the files have more than %d bytes together", most)
			}
		}
	}
	return out, nil
}

// sourcesAt lists the files of a path.
func sourcesAt(path string) ([]string, error) {
	names, err := manifestNames([]string{path})
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.IsDir() && !isManifest(path) && !isDescription(path):
		return nil, fmt.Errorf("file %s: %w", path, ErrNoManifest)
	case !info.IsDir():
		return names, nil
	}
	more, err := folder(path, isDescription)
	return append(names, more...), err
}

// WriteSources writes files below a folder, which it makes.
func WriteSources(dir string, all []Source) error {
	for _, s := range all {
		if !filepath.IsLocal(filepath.FromSlash(s.Name)) || strings.ContainsRune(s.Name, '\\') {
			return fmt.Errorf("file %q: its name leads out of the folder", s.Name)
		}
		path := filepath.Join(dir, filepath.FromSlash(s.Name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, s.Content, 0o640)); err != nil {
			return fmt.Errorf("write manifests: %w", err)
		}
	}
	return nil
}
