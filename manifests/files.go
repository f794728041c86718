package manifests

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edda/internal/files"
)

// ParseFiles parses files and, recursively, the *.yaml and *.yml of folders, in the order of their
// names. It skips hidden ones. The error is about reading them; problems are about their contents.
func ParseFiles(paths ...string) ([]*File, Problems, error) {
	var read []*File
	var ps Problems
	names, err := manifestNames(paths)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		// At most one byte more than the bound, and without blocking: a pipe among the manifests would
		// delay a reload, and then the stop.
		source, _, err := files.Regular(name, maxSource)
		if errors.Is(err, files.ErrNotRegular) {
			f := &File{Name: name}
			read, ps = append(read, f), append(ps, Problem{File: f, Pos: Pos{1, 1}, Message: err.Error() + ": take it away, or write the manifest into a file"})
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("read manifests: %w", err)
		}
		f, found := parse(name, source)
		read = append(read, f)
		ps = append(ps, found...)
	}
	return read, append(ps, twice(read)...), nil
}

// manifestNames lists the files of the paths, each once under any spelling.
func manifestNames(paths []string) ([]string, error) {
	var names []string
	seen := map[string]bool{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		found := []string{path}
		if info.IsDir() {
			if found, err = folder(path, isManifest); err != nil {
				return nil, err
			}
			if len(found) == 0 {
				return nil, fmt.Errorf("read manifests: the folder %s holds no *.yaml or *.yml", path)
			}
		}
		for _, name := range found {
			clean := filepath.Clean(name)
			if abs, err := filepath.Abs(name); err == nil {
				clean = abs
			}
			if !seen[clean] {
				names = append(names, name)
			}
			seen[clean] = true
		}
	}
	return names, nil
}

// ConfigFile is the usual name of Edda's configuration. A file of this name in a folder is no manifest.
const ConfigFile = "edda.yaml"

// isManifest reports whether a file of a folder is a manifest.
func isManifest(name string) bool {
	ext := filepath.Ext(name)
	return filepath.Base(name) != ConfigFile && (ext == ".yaml" || ext == ".yml")
}

// folder lists the files of a folder that are wanted. It skips hidden ones.
func folder(root string, wanted func(name string) bool) ([]string, error) {
	var names []string
	// The separator makes the walk enter a folder that is a symbolic link.
	err := filepath.WalkDir(root+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
		hidden := filepath.Clean(path) != filepath.Clean(root) && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil:
			return err
		case d.IsDir() && hidden:
			return filepath.SkipDir
		case !d.IsDir() && !hidden && wanted(path):
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names, nil
}

//go:embed examples/*.yaml
var embedded embed.FS

// Examples holds complete sagas with their tests, and the effects they use.
func Examples() fs.FS {
	sub, err := fs.Sub(embedded, "examples")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return sub
}
