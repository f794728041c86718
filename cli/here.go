package cli

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"edda/internal/files"
)

const (
	// maxHere bounds the files and folders that are searched for manifests if none are
	// named. Starting in a home folder is a mistake.
	maxHere = 10_000
	// maxForeign bounds the other YAML files that are named.
	maxForeign = 5
)

// manifestsHere lists the manifests in a folder and its subfolders. It lists other YAML
// files apart, because a folder that was not named may contain some.
func manifestsHere(root string) (found, foreign []string, err error) {
	seen := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if seen++; seen > maxHere {
			return fmt.Errorf("this folder holds more than %d files: name the manifests, as in edda dev sagas/", maxHere)
		}
		hidden := path != root && strings.HasPrefix(d.Name(), ".")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (hidden || d.Name() == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || hidden || !manifestFile(path):
			return nil
		}
		if !isManifest(path) {
			foreign = append(foreign, path)
			return nil
		}
		found = append(found, path)
		return nil
	})
	return found, foreign, err
}

// isManifest tells whether a file contains a saga or an effect. It opens regular files
// only.
func isManifest(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	text, err := files.Read(path, files.Most)
	if err != nil {
		return false
	}
	for line := range bytes.Lines(text) {
		if bytes.HasPrefix(line, []byte("saga:")) || bytes.HasPrefix(line, []byte("effect:")) {
			return true
		}
	}
	return false
}

// passedOver names the first files that are no manifests.
func passedOver(foreign []string) string {
	if len(foreign) > maxForeign {
		return strings.Join(foreign[:maxForeign], ", ") + fmt.Sprintf(" and %d more", len(foreign)-maxForeign)
	}
	return strings.Join(foreign, ", ")
}
