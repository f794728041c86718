package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"edda"
	"edda/internal/jsonvalue"
)

// Values are compact JSON, readable with any tool. Two keyspaces put a few
// bytes before it, which a commit needs without decoding: saga and history.

var errRow = errors.New("malformed row")

// valueEncoder writes JSON, one value behind the other into the arena of a change.
// HTML characters are not escaped, so the JSON inside a value comes back byte for byte.
type valueEncoder struct {
	coder jsonvalue.Coder
	arena arena
}

// encode returns *v behind head empty bytes.
func (e *valueEncoder) encode(head int, v any) ([]byte, error) {
	b, err := e.coder.Append(append(e.arena.begin(leastRoom), make([]byte, head)...), v)
	if err != nil {
		return nil, err
	}
	return e.arena.keep(b), nil
}

func decode[T any](what string, data []byte) (v T, err error) {
	if err := jsonvalue.Unmarshal(data, &v); err != nil {
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

// What a commit needs of rows that it replaces. Their other fields are passed over.
type (
	instancePart struct {
		Generation int `json:"generation"`
	}
	entryPart struct {
		DeadLetter string `json:"dead_letter"`
	}
	letterPart struct {
		Reason string     `json:"reason"`
		Key    tenantPart `json:"key"`
		Event  tenantPart `json:"event"`
		Cut    int        `json:"cut"`
	}
	tenantPart struct {
		Tenant string `json:"tenant"`
	}
)

// Fields names the one of an instance.
func (p *instancePart) Fields(c *jsonvalue.Coder) { c.Int("generation", &p.Generation) }

// Fields names the one of a held event.
func (p *entryPart) Fields(c *jsonvalue.Coder) { c.Text("dead_letter", &p.DeadLetter) }

// Fields names those of a dead letter.
func (p *letterPart) Fields(c *jsonvalue.Coder) {
	c.Text("reason", &p.Reason)
	c.Struct("key", &p.Key)
	c.Struct("event", &p.Event)
	c.Int("cut", &p.Cut)
}

// tenant is as [edda.DeadLetter.Tenant].
func (p *letterPart) tenant() string { return cmp.Or(p.Key.Tenant, p.Event.Tenant) }

// Fields names the one of a key, or of an event.
func (p *tenantPart) Fields(c *jsonvalue.Coder) { c.Text("tenant", &p.Tenant) }

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
	in := new(edda.Instance)
	if err := jsonvalue.Unmarshal(body, in); err != nil {
		return nil, fmt.Errorf("decode instance %s: %w", k, err)
	}
	in.Key = k
	return in, nil
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

// Fields names what is written.
func (r *storedRecord) Fields(c *jsonvalue.Coder) {
	c.Struct("key", &r.Key)
	c.IntIf("generation", &r.Generation)
	c.IntIf("version", &r.Version)
	c.UintIf("revision", &r.Revision)
	c.Struct("event", &r.Event)
	c.Text("fate", (*string)(&r.Fate))
	c.TextsIf("handlers", &r.Handlers)
	jsonvalue.ListIf(c, "outputs", &r.Outputs)
	c.TextIf("status", (*string)(&r.Status))
	c.TextsIf("work", &r.Work)
	c.JSONIf("state", &r.State)
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
