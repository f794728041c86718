package store

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
)

// encoded is a change as rows. The submitter's goroutine makes it, so that the one committer only
// looks up, puts and deletes.
type encoded struct {
	transitions []encodedTransition
	puts        []row
	claims      []encodedClaim
	work        []encodedWork
	dead        []encodedDead
	audits      [][]byte
	delivered   []ulid.ULID
	sent        []row
	arm, disarm [][]byte
	remove      Removal
	ready       []Encoded // by an [Encoder]
	size        int       // bytes of all keys and values
}

type row struct {
	bucket     format.Keyspace
	key, value []byte // no value: delete
}

type encodedTransition struct {
	key      []byte
	who      edda.Key
	head     format.Head
	instance []byte // with room for its head; nil: unchanged
	// generation and due are those of the instance. due is its row in the due index, if any.
	generation int
	due        [][]byte
	record     []byte // with room for the pointer to the previous one; nil: none
	work       []encodedWork
	settled    []string
	rows       []row // of its queues, and the parts of its state
	dead       *encodedDead
	resolved   []string
	arm        [][]byte
	disarm     [][]byte
}

type encodedWork struct {
	id    string
	from  edda.Key
	kind  edda.WorkKind
	value []byte
	work  *edda.Work // in the change
}

type encodedClaim struct {
	hour       uint32
	command    recentCommand
	key, value []byte
}

type encodedDead struct {
	id    string
	time  time.Time
	value []byte

	tenant string
	cut    []byte // the value without its payload; nil: it must stay whole
}

// estimate is how much too small [Change.Size] is at most: a 16th.
const estimate = 16

// encodeChange encodes a change of a [Change.Size]. It refuses what can never be written, so that
// only the disk fails a transaction.
func encodeChange(c Change, size int) (*encoded, error) {
	out := &encoded{delivered: c.Delivered, remove: c.Remove, ready: c.Encoded}
	for i := range c.Encoded {
		if err := c.Encoded[i].err; err != nil {
			return nil, err
		}
		out.size += c.Encoded[i].size
	}
	e := &encoder{out: out}
	out.transitions = make([]encodedTransition, 0, len(c.Transitions))
	e.values.arena.size = (size - out.size) + (size-out.size)/estimate
	for i := range c.Transitions {
		t, err := e.transition(&c.Transitions[i])
		if err != nil {
			return nil, unwritable(&c.Transitions[i], err)
		}
		out.transitions = append(out.transitions, t)
	}
	if err := e.rest(&c); err != nil {
		return nil, edda.Classify(edda.Poison, "encode change: %w", err)
	}
	out.size += e.size
	return out, nil
}

func unwritable(t *edda.Transition, err error) error {
	return edda.Classify(edda.Poison, "encode the transition of %s by %s: %w", t.Key, t.Event.ID, err)
}

// encoder encodes rows into one arena.
type encoder struct {
	out    *encoded // nil in an [Encoder]
	values valueEncoder
	size   int                // bytes of all keys and values so far
	list   []encodedWork      // the work of all transitions so far
	record *format.HistoryRow // of the transition before
}

// value encodes v after head empty bytes, and counts its bytes.
func (e *encoder) value(head int, v any) ([]byte, error) {
	b, err := e.values.encode(head, v)
	e.size += len(b)
	if err == nil && len(b) > math.MaxInt32 {
		err = fmt.Errorf("a value of %d bytes is too long", len(b))
	}
	return b, err
}

// key checks and counts a key.
func (e *encoder) key(what string, key []byte) ([]byte, error) {
	e.size += len(key)
	return key, format.CheckKey(what, key)
}

// instanceKey is [instanceKey] in the arena of the change.
func (e *encoder) instanceKey(k edda.Key) []byte {
	return e.values.arena.keep(format.AppendKey(e.values.arena.begin(leastRoom), k))
}

func (e *encoder) transition(t *edda.Transition) (out encodedTransition, err error) {
	out = encodedTransition{who: t.Key, settled: t.Settled, resolved: t.Resolved}
	if out.key, err = e.key("the key", e.instanceKey(t.Key)); err != nil {
		return out, err
	}
	if err := e.instance(t, &out); err != nil {
		return out, err
	}
	if t.Fate != edda.FateIgnored && t.Fate != "" { // without a fate, only its due row moves
		if out.record, err = e.value(format.PointerSize, e.recordOf(t)); err != nil {
			return out, err
		}
	}
	if out.work, err = e.work(t.Work); err != nil {
		return out, err
	}
	if err := e.queues(t, &out); err != nil {
		return out, err
	}
	for _, p := range t.Parts {
		if p.Data != nil && !json.Valid(p.Data) {
			return out, fmt.Errorf("part %d is no JSON", p.N)
		}
		e.size += len(p.Data) + len(out.key)
		out.rows = append(out.rows, row{bucket: format.Part, key: format.EntryKey(out.key, p.N), value: p.Data})
	}
	if t.Dead != nil {
		if out.dead, err = e.deadLetter(t.Dead); err != nil {
			return out, err
		}
	}
	out.arm, out.disarm = e.dues(out.key, t.Arm), e.dues(out.key, t.Disarm)
	return out, nil
}

// recordOf is the record of a transition. It is valid until the next call.
func (e *encoder) recordOf(t *edda.Transition) *format.HistoryRow {
	if e.record == nil {
		e.record = &format.HistoryRow{}
	}
	r, work := e.record, e.record.Work[:0]
	*r = format.HistoryRow{Key: t.Key, Event: t.Event, Fate: t.Fate, Handlers: t.Handlers, Outputs: t.Outputs}
	if in := t.Instance; in != nil {
		r.Generation, r.Version, r.Revision = in.Generation, in.Version, in.Revision
		r.Status, r.State = in.Status, in.State
	}
	for i := range t.Work {
		work = append(work, t.Work[i].ID)
	}
	r.Work = work
	return r
}

func (e *encoder) instance(t *edda.Transition, out *encodedTransition) (err error) {
	in := t.Instance
	if in == nil {
		return nil
	}
	out.head = format.Head{Version: in.Version, Status: in.Status}
	out.generation, out.due = in.Generation, e.dues(out.key, armed(in))
	// An instance must not begin if it could not end: the key of its end is longer.
	if len(out.key) > format.MaxKey/2 {
		if err := format.CheckKey("the key of its end", format.EndedKey(edda.StatusRunning, 0, t.Key)); err != nil {
			return err
		}
	}
	if in.Status == "" || len(in.Status) > math.MaxUint8 {
		return fmt.Errorf("status %q", in.Status)
	}
	if in.Version < 0 || int64(in.Version) > math.MaxUint32 {
		return fmt.Errorf("version %d", in.Version)
	}
	out.instance, err = e.value(out.head.Size(), in)
	return err
}

// armed is the time of the instance's row in the due index, if any.
func armed(in *edda.Instance) []time.Time {
	if in.Armed.IsZero() {
		return nil
	}
	return []time.Time{in.Armed}
}

func (e *encoder) work(list []edda.Work) (out []encodedWork, err error) {
	for i := range list {
		if err := e.send(&list[i]); err != nil {
			return nil, err
		}
	}
	n := len(e.list)
	return e.list[n-len(list) : n : n], nil
}

func (e *encoder) send(w *edda.Work) error {
	value, err := e.value(0, w)
	if err != nil {
		return fmt.Errorf("work %s: %w", w.ID, err)
	}
	e.size += len(ulid.ULID{})
	e.list = append(e.list, encodedWork{id: w.ID, from: w.From, kind: w.Kind, value: value, work: w})
	return nil
}

// queues encodes the rows of what is parked and held. Removals come first, because a number may
// be used again.
func (e *encoder) queues(t *edda.Transition, out *encodedTransition) error {
	remove := func(bucket format.Keyspace, numbers []uint64) {
		for _, n := range numbers {
			out.rows = append(out.rows, row{bucket: bucket, key: format.EntryKey(out.key, n)})
		}
	}
	add := func(bucket format.Keyspace, entry *edda.Entry) error {
		if entry == nil {
			return nil
		}
		value, err := e.value(0, entry)
		out.rows = append(out.rows, row{bucket: bucket, key: format.EntryKey(out.key, entry.N), value: value})
		return err
	}
	remove(format.Parked, t.Unpark)
	remove(format.Held, t.Release)
	if err := add(format.Parked, t.Park); err != nil {
		return fmt.Errorf("park: %w", err)
	}
	if err := add(format.Held, t.Hold); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	return nil
}

func (e *encoder) deadLetter(d *edda.DeadLetter) (*encodedDead, error) {
	if d.ID == "" {
		return nil, fmt.Errorf("a dead letter (%s) without an id", d.Reason)
	}
	if _, err := e.key("the dead letter's id", format.DeadKey(d.Time, d.ID)); err != nil {
		return nil, err
	}
	value, err := e.value(0, d)
	if err != nil {
		return nil, fmt.Errorf("dead letter %s: %w", d.ID, err)
	}
	out := &encodedDead{id: d.ID, time: d.Time, value: value, tenant: d.Tenant()}
	if short, ok := shortened(d); ok {
		out.cut, err = e.value(0, short)
	}
	return out, err
}

// shortened is a dead letter without its payload. It is not ok where the payload cannot be read
// from a stream again.
func shortened(d *edda.DeadLetter) (*edda.DeadLetter, bool) {
	n := len(d.Event.Payload) + len(d.Raw)
	if n == 0 || !d.InStream() {
		return nil, false
	}
	out := *d
	out.Cut += n
	out.Event.Payload, out.Raw = nil, nil
	return &out, true
}

func (e *encoder) dues(key []byte, times []time.Time) (rows [][]byte) {
	for _, t := range times {
		rows = append(rows, e.values.arena.keep(format.AppendDue(e.values.arena.begin(leastRoom), t, key)))
		e.size += format.TimeSize + len(key)
	}
	return rows
}

// rest encodes all of a change but its transitions.
func (e *encoder) rest(c *Change) (err error) {
	put := func(space format.Keyspace, key []byte, v any) {
		if err == nil {
			err = e.put(space, key, v)
		}
	}
	for i := range c.Checkpoints {
		put(format.Checkpoint, format.Texts(c.Checkpoints[i].Stream), &c.Checkpoints[i])
	}
	for i := range c.Positions {
		p := &c.Positions[i]
		put(format.Position, format.Texts(p.Tenant, p.Saga, p.Stream), &p.Checkpoint)
	}
	for _, p := range c.DropPositions {
		put(format.Position, format.Texts(p.Tenant, p.Saga, p.Stream), nil)
	}
	if c.Begun != nil {
		put(format.Meta, format.MetaBegun, append([]Beginning{}, *c.Begun...)) // null is no list
	}
	switch {
	case c.Unclaimed == nil:
	case len(*c.Unclaimed) == 0:
		put(format.Meta, format.MetaUnclaimed, nil)
	default:
		put(format.Meta, format.MetaUnclaimed, slices.Sorted(slices.Values(*c.Unclaimed)))
	}
	for i := range c.Marks {
		m := &c.Marks[i]
		if key := []byte(format.MetaMark + m.Stream); m.Seq == 0 {
			put(format.Meta, key, nil)
		} else {
			put(format.Meta, key, m)
		}
	}
	for _, s := range c.Schedules {
		put(format.Schedule, format.Texts(s.Tenant, s.Saga, s.Name), s)
	}
	for _, m := range c.Manifests {
		put(format.Manifest, format.ManifestKey(m), m)
	}
	switch d := c.Deployed; {
	case d == nil:
	case d.Revision == 0:
		put(format.Meta, format.MetaDeployed, nil)
		put(format.Meta, format.MetaDeployedFiles, nil)
	default:
		put(format.Meta, format.MetaDeployed, d)
		put(format.Meta, format.MetaDeployedFiles, d.Files)
	}
	for _, r := range c.Replays {
		put(format.Replay, format.Texts(r.ID), r)
	}
	for _, id := range c.DropReplays {
		put(format.Replay, format.Texts(id), nil)
	}
	if err != nil {
		return err
	}
	if e.out.work, err = e.work(c.Work); err != nil {
		return err
	}
	for i := range c.Sent {
		value, err := e.value(0, &c.Sent[i].Work)
		if err != nil {
			return fmt.Errorf("work %s: %w", c.Sent[i].Work.ID, err)
		}
		e.out.sent = append(e.out.sent, row{bucket: format.Outbox, key: c.Sent[i].ID.Bytes(), value: value})
	}
	for i := range c.Claims {
		claim, err := e.claim(&c.Claims[i])
		if err != nil {
			return err
		}
		e.out.claims = append(e.out.claims, claim)
	}
	for i := range c.Dead {
		dead, err := e.deadLetter(&c.Dead[i])
		if err != nil {
			return err
		}
		e.out.dead = append(e.out.dead, *dead)
	}
	for _, a := range c.Audits {
		value, err := e.value(0, a)
		if err != nil {
			return fmt.Errorf("audit: %w", err)
		}
		e.out.audits = append(e.out.audits, value)
	}
	for _, d := range c.Arm {
		key, err := e.key("the key", format.InstanceKey(d.Key))
		if err != nil {
			return err
		}
		e.out.arm = append(e.out.arm, format.DueKey(d.Time, key))
	}
	for _, d := range c.Disarm {
		e.out.disarm = append(e.out.disarm, format.DueKey(d.Time, format.InstanceKey(d.Key)))
	}
	return nil
}

// put adds a row of a keyspace. A nil value deletes the row.
func (e *encoder) put(space format.Keyspace, key []byte, v any) error {
	r := row{bucket: space, key: key}
	if v != nil {
		var err error
		if _, err = e.key(string(space)+" key", key); err != nil {
			return err
		}
		if r.value, err = e.value(0, v); err != nil {
			return fmt.Errorf("%s: %w", space, err)
		}
	}
	e.out.puts = append(e.out.puts, r)
	return nil
}

func (e *encoder) claim(cl *edda.Claim) (out encodedClaim, err error) {
	key, err := e.key("the command id", e.values.arena.keep(format.AppendText(format.AppendText(e.values.arena.begin(leastRoom), cl.Tenant), cl.CommandID)))
	if err != nil {
		return out, err
	}
	value, err := e.value(0, cl)
	if err != nil {
		return out, fmt.Errorf("claim %s: %w", cl.CommandID, err)
	}
	command := recentOf(cl.CommandID)
	return encodedClaim{hour: format.ClaimHour(cl.Claimed, command.millis), command: command, key: key, value: value}, nil
}
