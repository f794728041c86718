package store

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/oklog/ulid/v2"

	"edda"
	"edda/store/format"
)

// encoded is a change as bytes, made in the submitter's goroutine, so that the
// committer, of which there is one, only looks up, puts and deletes.
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
	ready       []Encoded // what an [Encoder] encoded before
	size        int       // of all keys and values
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
	// generation and due are the instance's: due is its own row, where it has one.
	generation int
	due        [][]byte
	record     []byte // with room for the pointer to the previous one; nil: none
	work       []encodedWork
	settled    []string
	rows       []row // of the key's queues, and the parts of its state
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
	work  *edda.Work // the change's
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
	cut    []byte // the value without its payload; nil: it has none, or must keep it
}

// estimate is by how much [Change.Size] is too small at most: a 16th.
const estimate = 16

// encodeChange refuses what can never be written, so that a transaction that
// fails has failed for the disk's sake. The size is the change's, see [Change.Size].
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
	if err := e.rest(c); err != nil {
		return nil, edda.Classify(edda.Poison, "encode change: %w", err)
	}
	out.size += e.size
	return out, nil
}

func unwritable(t *edda.Transition, err error) error {
	return edda.Classify(edda.Poison, "encode the transition of %s by %s: %w", t.Key, t.Event.ID, err)
}

// encoder makes the bytes of rows. The bytes of all of them share one arena.
type encoder struct {
	out    *encoded // the change; nil in an [Encoder]
	values valueEncoder
	size   int            // of all keys and values so far
	list   []encodedWork  // the work so far, of which each transition has a part
	record *format.Record // of the transition before
}

// value encodes v and counts it.
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
	if t.Fate != edda.FateIgnored && t.Fate != "" { // without a fate only its due row moved
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
	if err := e.parts(t, &out); err != nil {
		return out, err
	}
	if t.Dead != nil {
		if out.dead, err = e.deadLetter(t.Dead); err != nil {
			return out, err
		}
	}
	out.arm, out.disarm = e.dues(out.key, t.Arm), e.dues(out.key, t.Disarm)
	return out, nil
}

// recordOf is the record of a transition, until the next.
func (e *encoder) recordOf(t *edda.Transition) *format.Record {
	if e.record == nil {
		e.record = &format.Record{}
	}
	r, work := e.record, e.record.Work[:0]
	*r = format.Record{Key: t.Key, Event: t.Event, Fate: t.Fate, Handlers: t.Handlers, Outputs: t.Outputs}
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
	// Its end has a longer key: one that could never end must not begin.
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

// armed is the time of the instance's own row in the due index.
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

// outgoing is the work that is no transition's.
func (e *encoder) outgoing(c Change) (err error) {
	e.out.work, err = e.work(c.Work)
	return err
}

// queues writes what is parked and held. What a transition removes goes
// before what it adds: a number may be used again.
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

// parts writes what changed of a state that lies in parts.
func (e *encoder) parts(t *edda.Transition, out *encodedTransition) error {
	for _, p := range t.Parts {
		if p.Data != nil && !json.Valid(p.Data) {
			return fmt.Errorf("part %d is no JSON", p.N)
		}
		e.size += len(p.Data) + len(out.key)
		out.rows = append(out.rows, row{bucket: format.Part, key: format.EntryKey(out.key, p.N), value: p.Data})
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

// shortened is a dead letter without its payload, where that can be read again.
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

// rest encodes everything of a change but its transitions.
func (e *encoder) rest(c Change) error {
	for _, encode := range []func(Change) error{e.positions, e.begun, e.marks, e.sent, e.programs, e.claims, e.unclaimed, e.outgoing, e.letters, e.due, e.replays} {
		if err := encode(c); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) put(bucket format.Keyspace, key []byte, v any) error {
	key, err := e.key(string(bucket)+" key", key)
	if err != nil {
		return err
	}
	value, err := e.value(0, v)
	if err != nil {
		return fmt.Errorf("%s: %w", bucket, err)
	}
	e.out.puts = append(e.out.puts, row{bucket: bucket, key: key, value: value})
	return nil
}

func (e *encoder) positions(c Change) error {
	for i := range c.Checkpoints {
		if err := e.put(format.Checkpoint, format.Texts(c.Checkpoints[i].Stream), &c.Checkpoints[i]); err != nil {
			return err
		}
	}
	for i := range c.Positions {
		p := &c.Positions[i]
		if err := e.put(format.Position, format.Texts(p.Tenant, p.Saga, p.Stream), &p.Checkpoint); err != nil {
			return err
		}
	}
	for i := range c.DropPositions {
		p := &c.DropPositions[i]
		e.out.puts = append(e.out.puts, row{bucket: format.Position, key: format.Texts(p.Tenant, p.Saga, p.Stream)})
	}
	return nil
}

func (e *encoder) programs(c Change) error {
	for _, s := range c.Schedules {
		if err := e.put(format.Schedule, format.Texts(s.Tenant, s.Saga, s.Name), s); err != nil {
			return err
		}
	}
	for _, m := range c.Manifests {
		if err := e.put(format.Manifest, format.ManifestKey(m), m); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) claims(c Change) error {
	for i := range c.Claims {
		claim, err := e.claim(&c.Claims[i])
		if err != nil {
			return err
		}
		e.out.claims = append(e.out.claims, claim)
	}
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

func (e *encoder) letters(c Change) error {
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
	return nil
}

func (e *encoder) due(c Change) error {
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
