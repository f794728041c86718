package grpceffect

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"

	"edda"
)

// The bounds of the cache of methods.
const (
	// maxSchemas bounds the methods in the cache. A process has fewer effects.
	maxSchemas = 256
	// askAgain is the pause between two questions to a server's reflection, so that messages that
	// never fit do not double the calls.
	askAgain = time.Minute
	// readAgain is the same for files.
	readAgain = time.Second
)

// descriptors describes methods.
type descriptors interface {
	// name is the name in messages, key identifies the source.
	name() string
	key() string
	// load reads the files that describe the method. The error is edda.Permanent if another
	// attempt cannot succeed.
	load(ctx context.Context) (*protoregistry.Files, []stamp, error)
	// every is the shortest time between two reads.
	every() time.Duration
}

// method is the description of one method. It is immutable.
type method struct {
	path    string // "/shop.v1.Payments/Charge"
	in, out protoreflect.MessageDescriptor
	types   types
	read    []stamp // the files it was read from
}

// newMethod finds a method such as "shop.v1.Payments/Charge" in files.
func newMethod(full string, files *protoregistry.Files, read []stamp) (*method, error) {
	service, name, _ := strings.Cut(full, "/")
	d, _ := files.FindDescriptorByName(protoreflect.FullName(service))
	s, isService := d.(protoreflect.ServiceDescriptor)
	if !isService {
		return nil, fmt.Errorf("there is no service %s", service)
	}
	m := s.Methods().ByName(protoreflect.Name(name))
	switch {
	case m == nil:
		return nil, fmt.Errorf("service %s has no method %s", service, name)
	case m.IsStreamingClient() || m.IsStreamingServer():
		return nil, fmt.Errorf("%s streams; an effect calls methods with one message and one answer", full)
	}
	return &method{path: "/" + full, in: m.Input(), out: m.Output(), types: types{dynamicpb.NewTypes(files)}, read: read}, nil
}

// types resolves the types in an Any and of extensions: from the files, or else from this program,
// such as google.rpc.RetryInfo.
type types struct{ own *dynamicpb.Types }

func (t types) FindMessageByName(name protoreflect.FullName) (protoreflect.MessageType, error) {
	if found, err := t.own.FindMessageByName(name); err == nil {
		return found, nil
	}
	return protoregistry.GlobalTypes.FindMessageByName(name)
}

func (t types) FindMessageByURL(url string) (protoreflect.MessageType, error) {
	return t.FindMessageByName(protoreflect.FullName(url[strings.LastIndexByte(url, '/')+1:]))
}

func (t types) FindExtensionByName(name protoreflect.FullName) (protoreflect.ExtensionType, error) {
	return t.own.FindExtensionByName(name)
}

func (t types) FindExtensionByNumber(message protoreflect.FullName, n protoreflect.FieldNumber) (protoreflect.ExtensionType, error) {
	return t.own.FindExtensionByNumber(message, n)
}

// schemas is a cache of methods. At maxSchemas it drops the one that was used longest ago.
type schemas struct {
	now func() time.Time

	mu      sync.Mutex // guards below
	entries map[string]*entry
	uses    int
}

func newSchemas() *schemas { return &schemas{now: time.Now, entries: map[string]*entry{}} }

// entry is the cache entry of a method. One goroutine at a time reads its source.
type entry struct {
	now   func() time.Time
	turn  chan struct{} // of capacity 1: a semaphore for the reading
	known atomic.Pointer[method]
	stale atomic.Bool
	asked time.Time // guarded by turn
	used  int       // guarded by schemas.mu
}

func (s *schemas) entry(key string) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[key]
	if e == nil {
		s.makeRoom()
		e = &entry{now: s.now, turn: make(chan struct{}, 1)}
		s.entries[key] = e
	}
	s.uses++
	e.used = s.uses
	return e
}

func (s *schemas) makeRoom() {
	if len(s.entries) < maxSchemas {
		return
	}
	oldest := ""
	for key, e := range s.entries {
		if oldest == "" || e.used < s.entries[oldest].used {
			oldest = key
		}
	}
	delete(s.entries, oldest)
}

// doubt marks the method as possibly changed. The next call that needs it reads it again, but not
// more often than the source allows.
func (e *entry) doubt() { e.stale.Store(true) }

// valid returns the method, or nil if it must be read.
func (e *entry) valid() *method {
	m := e.known.Load()
	if m == nil || e.stale.Load() || changed(m.read) {
		return nil
	}
	return m
}

// get returns the method, and reads it if necessary. If the read fails, the method known before
// stays.
func (e *entry) get(ctx context.Context, from descriptors, name string) (*method, error) {
	if m := e.valid(); m != nil {
		return m, nil
	}
	select {
	case e.turn <- struct{}{}:
		defer func() { <-e.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	m := e.known.Load()
	if m != nil && (e.valid() != nil || e.now().Sub(e.asked) < from.every()) {
		return m, nil
	}
	files, read, err := readAll(ctx, from)
	var newer *method
	if err == nil {
		if newer, err = newMethod(name, files, read); err != nil {
			err = edda.Classify(edda.Permanent, "%s: %w", from.name(), err)
		}
	}
	e.asked = e.now()
	switch {
	case err == nil:
		e.known.Store(newer)
		e.stale.Store(false)
		return newer, nil
	case m != nil:
		return m, nil
	}
	return nil, err
}

// readAll reads a source and recovers from a panic over its files.
func readAll(ctx context.Context, from descriptors) (files *protoregistry.Files, read []stamp, err error) {
	defer survive(&err)
	return from.load(ctx)
}
