package stream

import (
	"bytes"
	"encoding/json"
	"slices"
	"sync"

	"github.com/nats-io/nats.go"

	"edda/internal/jsonvalue"
)

// draftRoom is how large the memory of a draft's body may be to be kept for the next:
// most bodies have some hundred bytes.
const draftRoom = 64 << 10

// draft is a message that is written over and over: the client copies what it publishes.
// What it says last is valid until it is written again.
type draft struct {
	nats.Msg
	room             []byte    // for bodies
	id, trace, taken [1]string // the headers' values
	event            envelope
	command          aggregateCommand
	result           result
	coder            jsonvalue.Coder
}

var drafts = sync.Pool{New: func() any { return &draft{Msg: nats.Msg{Header: nats.Header{}}} }}

// newDraft is given back by free.
func newDraft() *draft { return drafts.Get().(*draft) }

// free keeps nothing of what was written.
func (d *draft) free() {
	if cap(d.room) > draftRoom {
		d.room = nil
	}
	clear(d.Header)
	*d = draft{Msg: nats.Msg{Header: d.Header}, room: d.room[:0]}
	drafts.Put(d)
}

// fairCopy is a message of its own.
func fairCopy(write func(*draft) error) (*nats.Msg, error) {
	d := newDraft()
	defer d.free()
	if err := write(d); err != nil {
		return nil, err
	}
	m := &nats.Msg{Subject: d.Subject, Header: make(nats.Header, len(d.Header)), Data: bytes.Clone(d.Data)}
	for name, values := range d.Header {
		m.Header[name] = slices.Clone(values)
	}
	return m, nil
}

// body is *v as JSON, or v where it is that.
func (d *draft) body(v any) (data []byte, err error) {
	if data, is := v.(json.RawMessage); is {
		return data, nil
	}
	d.room, err = d.coder.Append(d.room[:0], v)
	return d.room, err
}

// set writes a header into its place.
func (d *draft) set(name string, place *[1]string, value string) {
	place[0] = headerText(value)
	d.Header[name] = place[:]
}
