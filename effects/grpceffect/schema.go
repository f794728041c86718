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

// The bounds of what is known of methods.
const (
	// maxSchemas methods are remembered: more than a process has effects.
	maxSchemas = 256
	// askAgain is how long a server's reflection is not asked again, so that
	// messages that never fit do not double the calls.
	askAgain = time.Minute
	// readAgain is the same for files.
	readAgain = time.Second
)

// source describes methods.
type source interface {
	// name is for messages, key tells sources apart.
	name() string
	key() string
	// load reads the files that describe the method. The error is
	// edda.Permanent where reading again cannot help.
	load(ctx context.Context) (*protoregistry.Files, []stamp, error)
	// every is how long at least lies between two reads.
	every() time.Duration
}

// method is what is known of one method; it never changes.
type method struct {
	path    string // "/shop.v1.Payments/Charge"
	in, out protoreflect.MessageDescriptor
	types   types
	read    []stamp // the files it was read from
}

// newMethod finds "shop.v1.Payments/Charge" among files.
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

// types finds what an Any or an extension holds: what the files describe, then
// what comes with this program, such as google.rpc.RetryInfo.
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

// schemas remembers methods. Of more than maxSchemas the one that was used
// longest ago goes.
type schemas struct {
	now func() time.Time

	mu      sync.Mutex // guards below
	entries map[string]*entry
	uses    int
}

func newSchemas() *schemas { return &schemas{now: time.Now, entries: map[string]*entry{}} }

// entry is the place of one method. One goroutine at a time reads its source.
type entry struct {
	now   func() time.Time
	turn  chan struct{} // of capacity 1: who has put something in may read
	known atomic.Pointer[method]
	stale atomic.Bool
	asked time.Time // by who has the turn
	used  int       // schemas.mu
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

// doubt says that the method may have changed: it is read again when the next
// call needs it, but not too often.
func (e *entry) doubt() { e.stale.Store(true) }

// valid is what is known, nil where it must be read.
func (e *entry) valid() *method {
	m := e.known.Load()
	if m == nil || e.stale.Load() || changed(m.read) {
		return nil
	}
	return m
}

// get is what is known of the method, read where that is needed. What was known
// before stays where it cannot be read again.
func (e *entry) get(ctx context.Context, from source, name string) (*method, error) {
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
	newer, err := load(ctx, from, name)
	e.asked = e.now()
	if err != nil && m != nil {
		return m, nil
	}
	if err == nil {
		e.known.Store(newer)
		e.stale.Store(false)
	}
	return newer, err
}

// load reads a method.
func load(ctx context.Context, from source, name string) (*method, error) {
	files, read, err := readAll(ctx, from)
	if err != nil {
		return nil, err
	}
	m, err := newMethod(name, files, read)
	if err != nil {
		return nil, edda.Classify(edda.Permanent, "%s: %w", from.name(), err)
	}
	return m, nil
}

func readAll(ctx context.Context, from source) (files *protoregistry.Files, read []stamp, err error) {
	defer survive(&err)
	return from.load(ctx)
}
