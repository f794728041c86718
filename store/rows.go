package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"edda"
)

// Values are compact JSON, readable with any tool. Two keyspaces put a few
// bytes before it, which a commit needs without decoding: saga and history.

var errRow = errors.New("malformed row")

// valueEncoder writes JSON, into one buffer for all values of a change: most of
// what encoding costs is growing buffers. HTML characters are not escaped, so
// the JSON inside a value comes back byte for byte.
type valueEncoder struct {
	buf  bytes.Buffer
	json *json.Encoder
}

func newValueEncoder() *valueEncoder {
	e := &valueEncoder{}
	e.json = json.NewEncoder(&e.buf)
	e.json.SetEscapeHTML(false)
	return e
}

// encode returns v behind head empty bytes.
func (e *valueEncoder) encode(head int, v any) ([]byte, error) {
	e.buf.Reset()
	e.buf.Write(make([]byte, head))
	if err := e.json.Encode(v); err != nil {
		return nil, err
	}
	return bytes.Clone(bytes.TrimSuffix(e.buf.Bytes(), []byte{'\n'})), nil
}

func decode[T any](what string, data []byte) (v T, err error) {
	if err := json.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("decode %s: %w", what, err)
	}
	return v, nil
}

var kindField = []byte(`"kind":"`)

// kindOf is the kind of the work in an outbox row, without decoding the rest of
// it. Nothing but the id stands before it, and a quote within a text is escaped,
// so that what is found first is the field.
func kindOf(row []byte) edda.WorkKind {
	_, after, _ := bytes.Cut(row, kindField)
	kind, _, _ := bytes.Cut(after, []byte{'"'})
	return edda.WorkKind(kind)
}

// head stands before an instance: the key's latest history row, and what the
// counters and the index of ends need of it. A key that has history but no
// instance has a head only.
type head struct {
	Last    pointer
	Ended   uint64 // the clock of the commit that finished it; 0: it has not ended
	Version int
	Status  edda.Status // empty: no instance
}

// headFixed is the length of a head but for the text of its status.
const headFixed = pointerSize + 8 + 4 + 1

func (h head) size() int { return headFixed + len(h.Status) }

func (h head) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(h.Last.append(b), h.Ended)
	b = binary.BigEndian.AppendUint32(b, uint32(h.Version))
	return append(append(b, byte(len(h.Status))), h.Status...)
}

// cutHead reads the head of a saga row; a row that is not there has a zero one.
func cutHead(b []byte) (head, []byte, error) {
	if b == nil {
		return head{}, nil, nil
	}
	if len(b) < headFixed || len(b) < headFixed+int(b[headFixed-1]) {
		return head{}, nil, errRow
	}
	h := head{
		Last: cutPointer(b), Ended: binary.BigEndian.Uint64(b[pointerSize:]),
		Version: int(binary.BigEndian.Uint32(b[pointerSize+8:])),
	}
	rest := b[headFixed:]
	n := int(b[headFixed-1])
	h.Status = edda.Status(rest[:n])
	return h, rest[n:], nil
}

// cutInstance decodes a saga row; nil when the key has no instance.
func cutInstance(k edda.Key, row []byte) (*edda.Instance, error) {
	h, body, err := cutHead(row)
	if err != nil {
		return nil, fmt.Errorf("instance %s: %w", k, err)
	}
	if h.Status == "" {
		return nil, nil
	}
	in, err := decode[edda.Instance]("instance "+k.String(), body)
	if err != nil {
		return nil, err
	}
	in.Key = k
	return &in, nil
}

// storedRecord is a [Record] as it is written: its place is its key.
type storedRecord struct {
	Key        edda.Key        `json:"key"`
	Commit     uint64          `json:"-"`
	N          int             `json:"-"`
	Generation int             `json:"generation,omitempty"`
	Version    int             `json:"version,omitempty"`
	Revision   uint64          `json:"revision,omitempty"`
	Event      edda.Event      `json:"event"`
	Fate       edda.Fate       `json:"fate"`
	Handlers   []string        `json:"handlers,omitempty"`
	Outputs    []edda.Output   `json:"outputs,omitempty"`
	Status     edda.Status     `json:"status,omitempty"`
	Work       []string        `json:"work,omitempty"`
	State      json.RawMessage `json:"state,omitempty"`
}

func recordOf(t edda.Transition) Record {
	r := Record{Key: t.Key, Event: t.Event, Fate: t.Fate, Handlers: t.Handlers, Outputs: t.Outputs}
	if in := t.Instance; in != nil {
		r.Generation, r.Version, r.Revision = in.Generation, in.Version, in.Revision
		r.Status, r.State = in.Status, in.State
	}
	for _, w := range t.Work {
		r.Work = append(r.Work, w.ID)
	}
	return r
}

// cutRecord decodes a history row and the place of the key's previous one.
func cutRecord(at pointer, row []byte) (Record, pointer, error) {
	if len(row) < pointerSize {
		return Record{}, pointer{}, errRow
	}
	s, err := decode[storedRecord]("history", row[pointerSize:])
	r := Record(s)
	r.Commit, r.N = at.Commit, int(at.N)
	return r, cutPointer(row), err
}

// countKey is what instances are counted by.
type countKey struct {
	Tenant, Saga string
	Version      int
	Status       edda.Status
}

func (c countKey) row() []byte {
	b := binary.BigEndian.AppendUint32(texts(c.Tenant, c.Saga), uint32(c.Version))
	return appendText(b, string(c.Status))
}

func cutCount(b []byte) (c countKey, err error) {
	if c.Tenant, b, err = cutText(b); err != nil {
		return c, err
	}
	if c.Saga, b, err = cutText(b); err != nil {
		return c, err
	}
	if len(b) < 4 {
		return c, errKey
	}
	c.Version = int(binary.BigEndian.Uint32(b))
	s, _, err := cutText(b[4:])
	c.Status = edda.Status(s)
	return c, err
}
