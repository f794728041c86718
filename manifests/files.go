package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"edda/internal/files"
)

// ParseFiles reads files, and folders' *.yaml and *.yml with the folders in
// them, hidden ones left out, in the order of their names. The error is about
// reading them; what is wrong in them are the problems, and that one is no file.
func ParseFiles(paths ...string) ([]*File, Problems, error) {
	var read []*File
	var ps Problems
	names, err := manifestNames(paths)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		source, err := readBounded(name)
		if errors.Is(err, files.ErrNotRegular) {
			f := &File{Name: name}
			read, ps = append(read, f), append(ps, Problem{File: f, Pos: Pos{1, 1}, Message: err.Error() + ": take it away, or write the manifest into a file"})
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		f, found := parse(name, source)
		read = append(read, f)
		ps = append(ps, found...)
	}
	return read, append(ps, twice(read)...), nil
}

// manifestNames lists the files that paths stand for, each once.
func manifestNames(paths []string) ([]string, error) {
	var names []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("read manifests: %w", err)
		}
		found := []string{path}
		if info.IsDir() {
			if found, err = folder(path); err != nil {
				return nil, err
			}
		}
		names = append(names, found...)
	}
	return unique(names), nil
}

// unique leaves out a file that is named again, however it is spelled.
func unique(names []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(names, func(name string) bool {
		clean := filepath.Clean(name)
		if abs, err := filepath.Abs(name); err == nil {
			clean = abs
		}
		again := seen[clean]
		seen[clean] = true
		return again
	})
}

// folder lists a folder's manifests.
func folder(root string) ([]string, error) {
	var names []string
	// The separator makes the walk enter a folder that is a symbolic link.
	err := filepath.WalkDir(root+string(filepath.Separator), func(path string, d fs.DirEntry, err error) error {
		hidden := filepath.Clean(path) != filepath.Clean(root) && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil:
			return err
		case d.IsDir() && hidden:
			return filepath.SkipDir
		case !d.IsDir() && !hidden && isYAML(path):
			names = append(names, path)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("read manifests: the folder %s holds no *.yaml or *.yml", root)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return names, nil
}

func isYAML(path string) bool {
	ext := filepath.Ext(path)
	return ext == ".yaml" || ext == ".yml"
}

// readBounded reads no more of a file than it takes to refuse it, and waits for nobody: a
// pipe among the manifests would hold up a reload, and then the stop.
func readBounded(name string) ([]byte, error) {
	source, _, err := files.Regular(name, maxSource)
	if errors.Is(err, files.ErrNotRegular) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("read manifests: %w", err)
	}
	return source, nil
}
