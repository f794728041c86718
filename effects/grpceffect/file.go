package grpceffect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"edda"
)

// stamp identifies a file's content as it was read.
type stamp struct {
	path string
	size int64
	at   time.Time
}

func changed(read []stamp) bool {
	return slices.ContainsFunc(read, func(s stamp) bool {
		info, err := os.Stat(s.path)
		return err != nil || info.Size() != s.size || !info.ModTime().Equal(s.at)
	})
}

// readFile reads a regular file of at most maxFile bytes.
func readFile(path string) ([]byte, stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, stamp{}, err
	}
	if !info.Mode().IsRegular() {
		return nil, stamp{}, fmt.Errorf("%s is no file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, stamp{}, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(raw) > maxFile {
		err = fmt.Errorf("%s is larger than 16 MiB", path)
	}
	return raw, stamp{path, info.Size(), info.ModTime()}, err
}

// descriptorSet is a file that protoc --include_imports --descriptor_set_out writes.
type descriptorSet struct{ path string }

func (s descriptorSet) name() string       { return s.path }
func (s descriptorSet) key() string        { return s.path }
func (descriptorSet) every() time.Duration { return readAgain }

func (s descriptorSet) load(context.Context) (*protoregistry.Files, []stamp, error) {
	raw, at, err := readFile(s.path)
	if err != nil {
		return nil, nil, err // an operator may add the file
	}
	var set descriptorpb.FileDescriptorSet
	if err := described().Unmarshal(raw, &set); err != nil || len(set.File) == 0 {
		return nil, nil, edda.Classify(edda.Permanent, "%s is no descriptor set; protoc --include_imports --descriptor_set_out writes one", s.path)
	}
	d := newDescription()
	for _, f := range set.File {
		if err := d.put(f, 0); err != nil {
			return nil, nil, edda.Classify(edda.Permanent, "%s: %w", s.path, err)
		}
	}
	if missing := d.missing(); missing != "" {
		return nil, nil, edda.Classify(edda.Permanent, "%s: %q is imported and not in it: write it with --include_imports", s.path, missing)
	}
	files, err := d.assemble(s.path)
	return files, []stamp{at}, err
}

// protoFile is a .proto file, and the folders of its imports.
type protoFile struct {
	path    string
	imports []string
}

func (p protoFile) name() string       { return p.path }
func (p protoFile) key() string        { return strings.Join(append([]string{p.path}, p.imports...), "\x00") }
func (protoFile) every() time.Duration { return readAgain }

func (p protoFile) load(ctx context.Context) (*protoregistry.Files, []stamp, error) {
	name, roots := p.locate()
	r := &protoReader{roots: roots}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(protocompile.ResolverFunc(r.find)), MaxParallelism: 1}
	linked, err := compiler.Compile(ctx, name)
	var unread *fs.PathError
	switch {
	case errors.As(err, &unread) || errors.Is(err, fs.ErrNotExist) || ctx.Err() != nil:
		return nil, nil, err // an operator may add the file
	case err != nil:
		return nil, nil, edda.Classify(edda.Permanent, "%w", err)
	}
	d := newDescription()
	if err := d.putAll(linked[0]); err != nil {
		return nil, nil, edda.Classify(edda.Permanent, "%w", err)
	}
	files, err := d.assemble(p.path)
	return files, r.read, err
}

// locate returns the name by which other files import this one, and the folders of the imports:
// import_paths, or else the file's own.
func (p protoFile) locate() (name string, roots []string) {
	for _, root := range p.imports {
		if rel, err := filepath.Rel(root, p.path); err == nil && filepath.IsLocal(rel) {
			return filepath.ToSlash(rel), p.imports
		}
	}
	return filepath.Base(p.path), append([]string{filepath.Dir(p.path)}, p.imports...)
}

// protoReader finds .proto files by their import names.
type protoReader struct {
	roots []string

	mu   sync.Mutex // guards below: the compiler reads imports concurrently
	read []stamp
	size int64
}

func (r *protoReader) find(name string) (found protocompile.SearchResult, err error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return found, fmt.Errorf("%q is no name below an import path", name)
	}
	for _, root := range r.roots {
		raw, at, err := readFile(filepath.Join(root, filepath.FromSlash(name)))
		if !errors.Is(err, fs.ErrNotExist) {
			found.Source = bytes.NewReader(raw)
			return found, r.note(at, err)
		}
	}
	return found, fmt.Errorf("%q is not in %s: %w", name, strings.Join(r.roots, ", "), fs.ErrNotExist)
}

// note records a file that was read, and checks the bounds of the description.
func (r *protoReader) note(at stamp, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read, r.size = append(r.read, at), r.size+at.size
	if err == nil && (len(r.read) > maxFiles || r.size > maxDescription) {
		err = errTooLarge
	}
	return err
}
