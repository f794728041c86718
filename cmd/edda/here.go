package main

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
	// maxHere bounds how many files and folders are looked at for manifests where
	// nobody named any: a home folder is a mistake.
	maxHere = 10_000
	// maxForeign bounds how many files are named that are no manifests.
	maxForeign = 5
)

// manifestsHere lists the manifests in a folder and the folders in it, and the
// YAML files that are something else: a folder that nobody named holds those, too.
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

// isManifest tells whether a file has a document of a saga or an effect. What is no
// file, such as a pipe, is not opened.
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

// passedOver names files that are no manifests, the first ones.
func passedOver(foreign []string) string {
	if len(foreign) > maxForeign {
		return strings.Join(foreign[:maxForeign], ", ") + fmt.Sprintf(" and %d more", len(foreign)-maxForeign)
	}
	return strings.Join(foreign, ", ")
}
