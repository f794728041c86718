package grpceffect

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"edda"
)

var errTooLarge = errors.New("the description is larger than 1000 files or 64 MiB")

// description collects files until no import is missing.
type description struct {
	files    map[string]*descriptorpb.FileDescriptorProto
	order    []string // in the order of put
	complete int      // the imports of the first complete files are there
	size     int
}

func newDescription() *description {
	return &description{files: map[string]*descriptorpb.FileDescriptorProto{}}
}

// put adds a file of a size in bytes. Of files with one name the first counts.
func (d *description) put(f *descriptorpb.FileDescriptorProto, size int) error {
	if d.files[f.GetName()] != nil {
		return nil
	}
	d.size += size + namesOf(f)
	if len(d.files) >= maxFiles || d.size > maxDescription {
		return errTooLarge
	}
	d.files[f.GetName()] = f
	d.order = append(d.order, f.GetName())
	return nil
}

// namesOf returns the length of all full names in a file. A full name contains the names around it,
// so that a small file can expand beyond the memory.
func namesOf(f *descriptorpb.FileDescriptorProto) (n int) {
	pkg := len(f.GetPackage()) + 1
	for _, m := range f.GetMessageType() {
		n += namesIn(pkg, m)
	}
	for _, e := range f.GetEnumType() {
		n += (pkg + len(e.GetName())) * (1 + len(e.GetValue()))
	}
	for _, s := range f.GetService() {
		n += (pkg + len(s.GetName())) * (1 + len(s.GetMethod()))
	}
	return n + pkg*len(f.GetExtension())
}

func namesIn(around int, m *descriptorpb.DescriptorProto) int {
	own := around + len(m.GetName()) + 1
	n := own * (1 + len(m.GetField()) + len(m.GetOneofDecl()) + len(m.GetExtension()))
	for _, e := range m.GetEnumType() {
		n += (own + len(e.GetName())) * (1 + len(e.GetValue()))
	}
	for _, inner := range m.GetNestedType() {
		n += namesIn(own, inner)
	}
	return n
}

// missing returns an import that is not there, or empty. It adds imports of the files that come
// with protobuf.
func (d *description) missing() string {
	for ; d.complete < len(d.order); d.complete++ { // standard may append
		for _, name := range d.files[d.order[d.complete]].GetDependency() {
			if d.files[name] == nil && !d.standard(name) {
				return name
			}
		}
	}
	return ""
}

// standard adds a file google/protobuf/….proto, which is compiled into this program.
func (d *description) standard(name string) bool {
	if !strings.HasPrefix(name, "google/protobuf/") {
		return false
	}
	f, err := protoregistry.GlobalFiles.FindFileByPath(name)
	return err == nil && d.put(protodesc.ToFileDescriptorProto(f), 0) == nil
}

// assemble links the files. from names the source in errors.
func (d *description) assemble(from string) (*protoregistry.Files, error) {
	if name := d.missing(); name != "" {
		return nil, edda.Classify(edda.Permanent, "%s: %q is imported and not there", from, name)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, name := range d.order {
		set.File = append(set.File, d.files[name])
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "%s: the description is not valid: %w", from, err)
	}
	return files, nil
}

// putAll adds linked files and all their imports.
func (d *description) putAll(files ...protoreflect.FileDescriptor) error {
	for _, f := range files {
		if d.files[f.Path()] != nil {
			continue
		}
		if err := d.put(protodesc.ToFileDescriptorProto(f), 0); err != nil {
			return err
		}
		for i := range f.Imports().Len() {
			if err := d.putAll(f.Imports().Get(i).FileDescriptor); err != nil {
				return err
			}
		}
	}
	return nil
}

// methodsOf lists the methods, such as "shop.v1.Payments/Charge", for messages.
func methodsOf(files *protoregistry.Files) []string {
	var out []string
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				out = append(out, fmt.Sprintf("%s/%s", s.FullName(), s.Methods().Get(j).Name()))
			}
		}
		return true
	})
	slices.Sort(out)
	return out
}
