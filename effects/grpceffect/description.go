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

var errTooLarge = errors.New("the description is larger than 1000 files or 16 MiB")

// description is a set of files that is to be complete.
type description struct {
	files map[string]*descriptorpb.FileDescriptorProto
	order []string // as they came
	size  int
}

func newDescription() *description {
	return &description{files: map[string]*descriptorpb.FileDescriptorProto{}}
}

// put adds a file, the first of each name.
func (d *description) put(f *descriptorpb.FileDescriptorProto, size int) error {
	if d.files[f.GetName()] != nil {
		return nil
	}
	d.size += size
	if len(d.files) >= maxFiles || d.size > maxDescription {
		return errTooLarge
	}
	d.files[f.GetName()] = f
	d.order = append(d.order, f.GetName())
	return nil
}

// missing is a file that another imports and nobody has given; those that come
// with protobuf itself are added where that is so.
func (d *description) missing() string {
	for i := 0; i < len(d.order); i++ { // it grows on the way
		for _, name := range d.files[d.order[i]].GetDependency() {
			if d.files[name] == nil && !d.standard(name) {
				return name
			}
		}
	}
	return ""
}

// standard adds google/protobuf/….proto, which this program knows by heart.
func (d *description) standard(name string) bool {
	if !strings.HasPrefix(name, "google/protobuf/") {
		return false
	}
	f, err := protoregistry.GlobalFiles.FindFileByPath(name)
	return err == nil && d.put(protodesc.ToFileDescriptorProto(f), 0) == nil
}

// assemble links the files.
func (d *description) assemble() (*protoregistry.Files, error) {
	if name := d.missing(); name != "" {
		return nil, edda.Classify(edda.Permanent, "%q is imported and not there", name)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, name := range d.order {
		set.File = append(set.File, d.files[name])
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "the description is not valid: %w", err)
	}
	return files, nil
}

// putAll adds linked files with everything they import.
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

// methodsOf lists "shop.v1.Payments/Charge", for messages.
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
