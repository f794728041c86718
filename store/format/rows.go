package format

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/internal/jsonvalue"
)

var (
	fromField   = []byte(`,"from":{`)
	tenantField = []byte(`"tenant":"`)
	sagaField   = []byte(`"saga":"`)
)

// OwnerIn finds the tenant and the saga of an outbox row without decoding it. It is not ok where
// one of them is escaped.
func OwnerIn(row []byte) (tenant, saga []byte, ok bool) {
	_, after, _ := bytes.Cut(row, kindField)
	if _, after, ok = bytes.Cut(after, []byte{'"'}); !ok || !bytes.HasPrefix(after, fromField) {
		return nil, nil, false
	}
	after = after[len(fromField):]
	if bytes.HasPrefix(after, tenantField) {
		if tenant, after, ok = bytes.Cut(after[len(tenantField):], []byte(`",`)); !ok {
			return nil, nil, false
		}
	}
	if !bytes.HasPrefix(after, sagaField) {
		return nil, nil, false
	}
	saga, _, ok = bytes.Cut(after[len(sagaField):], []byte{'"'})
	return tenant, saga, ok && bytes.IndexByte(tenant, '\\') < 0 && bytes.IndexByte(saga, '\\') < 0
}

// ErrRow says that a value cannot be decoded.
var ErrRow = errors.New("malformed row")

// Decode decodes the JSON of a value; what names it in the error.
func Decode[T any](what string, data []byte) (v T, err error) {
	if err := jsonvalue.Unmarshal(data, &v); err != nil {
		return v, fmt.Errorf("decode %s: %w", what, err)
	}
	return v, nil
}

var kindField = []byte(`"kind":"`)

// KindOf finds the kind of the work in an outbox row without decoding it. Only the id is before
// the field, and a quote within a text is escaped.
func KindOf(row []byte) edda.WorkKind {
	_, after, _ := bytes.Cut(row, kindField)
	kind, _, _ := bytes.Cut(after, []byte{'"'})
	return edda.WorkKind(kind)
}

// A commit decodes only these fields of the rows that it replaces.
type (
	InstancePart struct {
		Generation int `json:"generation"`
	}
	EntryPart struct {
		DeadLetter string `json:"dead_letter"`
	}
	LetterPart struct {
		Reason string     `json:"reason"`
		Key    TenantPart `json:"key"`
		Event  TenantPart `json:"event"`
		Cut    int        `json:"cut"`
	}
	TenantPart struct {
		Tenant string `json:"tenant"`
	}
)

// Fields lists the field.
func (p *InstancePart) Fields(c *jsonvalue.Coder) { c.Int("generation", &p.Generation) }

// Fields lists the field.
func (p *EntryPart) Fields(c *jsonvalue.Coder) { c.Text("dead_letter", &p.DeadLetter) }

// Fields lists the fields.
func (p *LetterPart) Fields(c *jsonvalue.Coder) {
	c.Text("reason", &p.Reason)
	c.Struct("key", &p.Key)
	c.Struct("event", &p.Event)
	c.Int("cut", &p.Cut)
}

// Tenant is as [edda.DeadLetter.Tenant].
func (p *LetterPart) Tenant() string { return cmp.Or(p.Key.Tenant, p.Event.Tenant) }

// Fields lists the field.
func (p *TenantPart) Fields(c *jsonvalue.Coder) { c.Text("tenant", &p.Tenant) }

// Head is before the JSON of an instance. It has the key's latest history row, and what counters
// and the index of ends need. A key that has history but no instance has a head alone.
type Head struct {
	Last    Pointer
	Ended   uint64 // the clock of the commit that finished it; 0: it has not ended
	Version int
	Status  edda.Status // empty: no instance
}

// headFixed is the length of a head without its status.
const headFixed = PointerSize + 8 + 4 + 1

// Size is the length of the head.
func (h Head) Size() int { return headFixed + len(h.Status) }

// Append appends the pointer.
func (h Head) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(h.Last.Append(b), h.Ended)
	b = binary.BigEndian.AppendUint32(b, uint32(h.Version))
	return append(append(b, byte(len(h.Status))), h.Status...)
}

// CutHead decodes the head of a saga row and returns the JSON after it. Without a row it is zero.
func CutHead(b []byte) (Head, []byte, error) {
	if b == nil {
		return Head{}, nil, nil
	}
	if len(b) < headFixed || len(b) < headFixed+int(b[headFixed-1]) {
		return Head{}, nil, ErrRow
	}
	h := Head{
		Last: CutPointer(b), Ended: binary.BigEndian.Uint64(b[PointerSize:]),
		Version: int(binary.BigEndian.Uint32(b[PointerSize+8:])),
	}
	rest := b[headFixed:]
	n := int(b[headFixed-1])
	h.Status = edda.Status(rest[:n])
	return h, rest[n:], nil
}

// CutInstance decodes a saga row. It returns nil where the key has no instance.
func CutInstance(k edda.Key, row []byte) (*edda.Instance, error) {
	h, body, err := CutHead(row)
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

// HistoryRow is a transition in the history. Commit and N are in its key.
type HistoryRow struct {
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

// Fields lists the fields.
func (r *HistoryRow) Fields(c *jsonvalue.Coder) {
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

// CutRecord decodes a history row, and the pointer to the previous row of its instance.
func CutRecord(at Pointer, row []byte) (HistoryRow, Pointer, error) {
	if len(row) < PointerSize {
		return HistoryRow{}, Pointer{}, ErrRow
	}
	r, err := Decode[HistoryRow]("history", row[PointerSize:])
	r.Commit, r.N = at.Commit, int(at.N)
	return r, CutPointer(row), err
}

// CutWork decodes an outbox row.
func CutWork(k, v []byte) (id ulid.ULID, w edda.Work, err error) {
	if len(k) != len(id) {
		return id, w, fmt.Errorf("outbox row %x: %w", k, ErrKey)
	}
	copy(id[:], k)
	w, err = Decode[edda.Work]("outbox row", v)
	return id, w, err
}

// CutPosition decodes a saga's own position in a stream.
func CutPosition(k, v []byte) (tenant, saga string, c edda.Checkpoint, err error) {
	at := k
	if tenant, k, err = CutText(k); err == nil {
		saga, _, err = CutText(k)
	}
	if err != nil {
		return tenant, saga, c, fmt.Errorf("position %x: %w", at, err)
	}
	c, err = Decode[edda.Checkpoint]("position", v)
	return tenant, saga, c, err
}

// CountKey is a key of the counters of instances.
type CountKey struct {
	Tenant, Saga string
	Version      int
	Status       edda.Status
}

// CountOf is the counter of an instance.
func CountOf(k edda.Key, version int, status edda.Status) CountKey {
	return CountKey{Tenant: k.Tenant, Saga: k.Saga, Version: version, Status: status}
}

// Bytes is the key as bytes.
func (c CountKey) Bytes() []byte {
	b := binary.BigEndian.AppendUint32(Texts(c.Tenant, c.Saga), uint32(c.Version))
	return AppendText(b, string(c.Status))
}

// CutCount decodes a [CountKey].
func CutCount(b []byte) (c CountKey, err error) {
	if c.Tenant, b, err = CutText(b); err != nil {
		return c, err
	}
	if c.Saga, b, err = CutText(b); err != nil {
		return c, err
	}
	if len(b) < 4 {
		return c, ErrKey
	}
	c.Version = int(binary.BigEndian.Uint32(b))
	s, _, err := CutText(b[4:])
	c.Status = edda.Status(s)
	return c, err
}
