package store

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"edda"
)

// model is the store as a few maps: what its promises amount to, without a file.
type model struct {
	cells     map[edda.Key]*edda.Cell
	history   map[edda.Key][]Record // newest first
	outbox    []edda.Work
	due       map[Due]bool
	dead      map[string]edda.DeadLetter
	claims    map[string]edda.Claim
	positions map[string]SagaPosition
	shared    map[string]edda.Checkpoint
	schedules map[string]edda.ScheduleState
	manifests map[string]edda.Manifest
	audits    []Audit // newest first
}

func newModel() *model {
	return &model{
		cells: map[edda.Key]*edda.Cell{}, history: map[edda.Key][]Record{}, due: map[Due]bool{},
		dead: map[string]edda.DeadLetter{}, claims: map[string]edda.Claim{}, positions: map[string]SagaPosition{},
		shared: map[string]edda.Checkpoint{}, schedules: map[string]edda.ScheduleState{}, manifests: map[string]edda.Manifest{},
	}
}

func (m *model) cell(k edda.Key) *edda.Cell {
	if m.cells[k] == nil {
		m.cells[k] = &edda.Cell{Key: k}
	}
	return m.cells[k]
}

func (m *model) transition(t edda.Transition) {
	cell := m.cell(t.Key)
	if t.Instance != nil {
		cell.Instance = t.Instance
	}
	cell.Parts = withParts(cell.Parts, t.Parts)
	cell.Parked = without(cell.Parked, t.Unpark)
	cell.Held = without(cell.Held, t.Release)
	if t.Park != nil {
		cell.Parked = append(cell.Parked, *t.Park)
	}
	if t.Hold != nil {
		cell.Held = append(cell.Held, *t.Hold)
	}
	for _, w := range t.Work {
		if w.Kind == edda.WorkEffect {
			m.settle(w.ID, w.From)
		}
		m.outbox = append(m.outbox, w)
	}
	for _, id := range t.Settled {
		m.settle(id, t.Key)
	}
	if t.Dead != nil {
		m.dead[t.Dead.ID] = *t.Dead
	}
	for _, id := range t.Resolved {
		delete(m.dead, id)
	}
	for _, at := range t.Disarm {
		delete(m.due, Due{at, t.Key})
	}
	for _, at := range t.Arm {
		m.due[Due{at, t.Key}] = true
	}
	m.record(t)
}

func (m *model) record(t edda.Transition) {
	if t.Fate == edda.FateIgnored {
		return
	}
	r := Record{Key: t.Key, Event: t.Event, Fate: t.Fate, Handlers: t.Handlers, Outputs: t.Outputs}
	for _, w := range t.Work {
		r.Work = append(r.Work, w.ID)
	}
	if in := t.Instance; in != nil {
		r.Generation, r.Version, r.Revision, r.Status, r.State = in.Generation, in.Version, in.Revision, in.Status, in.State
	}
	m.history[t.Key] = append([]Record{r}, m.history[t.Key]...)
}

// withParts are the parts of a state after a transition.
func withParts(parts, changed []edda.Part) []edda.Part {
	parts = slices.Clone(parts)
	for _, p := range changed {
		parts = slices.DeleteFunc(parts, func(q edda.Part) bool { return q.N == p.N })
		if p.Data != nil {
			parts = append(parts, p)
		}
	}
	slices.SortFunc(parts, func(a, b edda.Part) int { return cmp.Compare(a.N, b.N) })
	if len(parts) == 0 {
		return nil
	}
	return parts
}

func without(entries []edda.Entry, numbers []uint64) []edda.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e edda.Entry) bool { return slices.Contains(numbers, e.N) })
}

func (m *model) settle(id string, who edda.Key) {
	m.outbox = slices.DeleteFunc(m.outbox, func(w edda.Work) bool { return w.Kind == edda.WorkEffect && w.ID == id && w.From == who })
}

// disarm comes before a change's transitions, rest after them.
func (m *model) disarm(c Change) {
	for _, d := range c.Disarm {
		delete(m.due, d)
	}
}

func (m *model) rest(c Change, delivered []string) {
	for _, d := range c.Arm {
		m.due[d] = true
	}
	m.outbox = slices.DeleteFunc(m.outbox, func(w edda.Work) bool { return slices.Contains(delivered, w.ID) })
	for _, cp := range c.Checkpoints {
		m.shared[cp.Stream] = cp
	}
	for _, p := range c.Positions {
		m.positions[p.Tenant+"\x00"+p.Saga+"\x00"+p.Stream] = p
	}
	for _, s := range c.Schedules {
		m.schedules[s.Tenant+"\x00"+s.Saga+"\x00"+s.Name] = s
	}
	for _, x := range c.Manifests {
		m.manifests[fmt.Sprintf("%s\x00%9d%s", x.Saga, x.Version, x.Hash)] = x
	}
	for _, d := range c.Dead {
		m.dead[d.ID] = d
	}
	for id, claim := range m.claims {
		if claim.Claimed.Before(c.Remove.Claims.Hour.Truncate(time.Hour)) {
			delete(m.claims, id)
		}
	}
	for _, claim := range c.Claims {
		m.claims[claim.CommandID] = claim
	}
	for _, a := range c.Audits {
		m.audits = append([]Audit{a}, m.audits...)
	}
}

func sorted[K ~string, V any](m map[K]V) (out []V) {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		out = append(out, m[k])
	}
	return out
}

func (m *model) counts() (out []Count) {
	counts := map[Count]int{}
	for k, c := range m.cells {
		if c.Instance != nil {
			counts[Count{Tenant: k.Tenant, Saga: k.Saga, Version: c.Instance.Version, Status: c.Instance.Status}]++
		}
	}
	for c, n := range counts {
		c.N = n
		out = append(out, c)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		ka, kb := edda.Key{Tenant: a.Tenant, Saga: a.Saga}, edda.Key{Tenant: b.Tenant, Saga: b.Saga}
		if ka != kb {
			return keyLess(ka, kb)
		}
		return fmt.Sprint(a.Version, a.Status) < fmt.Sprint(b.Version, b.Status)
	})
	return out
}

func (m *model) dues() (out []Due) {
	for d := range m.due {
		out = append(out, d)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		if !a.Time.Equal(b.Time) {
			return a.Time.Before(b.Time)
		}
		return keyLess(a.Key, b.Key)
	})
	return out
}

func keyLess(a, b edda.Key) bool {
	for _, p := range [][2]string{{a.Tenant, b.Tenant}, {a.Saga, b.Saga}} {
		if p[0] != p[1] {
			return p[0] < p[1]
		}
	}
	return a.Correlation < b.Correlation
}

func (m *model) instances(q Query) (out []edda.Instance) {
	for _, c := range m.cells {
		in := c.Instance
		if in == nil || q.Tenant != "" && in.Key.Tenant != q.Tenant || q.Saga != "" && in.Key.Saga != q.Saga ||
			q.Status != "" && in.Status != q.Status || q.After != (edda.Key{}) && !keyLess(q.After, in.Key) {
			continue
		}
		out = append(out, *in)
	}
	sort.Slice(out, func(i, j int) bool { return keyLess(out[i].Key, out[j].Key) })
	if len(out) > q.limit() {
		out = out[:q.limit()]
	}
	return out
}

// Keys that are prefixes of each other, empty, and hold the bytes that the
// encoding is about.
var modelKeys = []edda.Key{
	{}, {Saga: "order"}, {Saga: "order", Correlation: "1"}, {Tenant: "a", Saga: "order", Correlation: "1"},
	{Tenant: "a", Saga: "order", Correlation: "1\x00"}, {Tenant: "a", Saga: "order", Correlation: "1\x00\x01"},
	{Tenant: "a", Saga: "orders"}, {Tenant: "a\x00", Saga: "order", Correlation: "\x01"},
	{Tenant: "a\x01", Saga: "b", Correlation: "c"}, {Tenant: "ab", Saga: "order", Correlation: "é/:"},
}

var modelTimes = []time.Time{
	{}, time.Unix(-1, 5).UTC(), noon, noon.Add(1), noon.Add(time.Hour), time.Date(9999, 1, 2, 3, 4, 5, 6, time.UTC),
}

// generator draws valid changes for what the model holds.
type generator struct {
	t *rapid.T
	m *model
	n int
	// again are the commands that this flight emitted anew: their rows have other ids now.
	again map[string]bool
}

func (g *generator) id(prefix string) string {
	g.n++
	return fmt.Sprint(prefix, g.n)
}

func (g *generator) bool(label string) bool { return rapid.Bool().Draw(g.t, label) }

func (g *generator) key() edda.Key { return rapid.SampledFrom(modelKeys).Draw(g.t, "key") }

func (g *generator) time() time.Time { return rapid.SampledFrom(modelTimes).Draw(g.t, "time") }

func (g *generator) event() edda.Event {
	return edda.Event{ID: g.id("e"), Time: g.time(), Payload: json.RawMessage(`{"n":9007199254740993,"s":"<&>\u0000"}`)}
}

func (g *generator) transition() edda.Transition {
	k := g.key()
	cell := g.m.cell(k)
	t := edda.Transition{Key: k, Event: g.event(), Fate: edda.FateHandled}
	switch {
	case g.bool("no change"):
		t.Fate = rapid.SampledFrom([]edda.Fate{edda.FateDuplicate, edda.FateIgnored, edda.FateGuarded}).Draw(g.t, "fate")
		return t
	case cell.Instance == nil && g.bool("park"):
		t.Fate, t.Park = edda.FateParked, &edda.Entry{N: next(cell.Parked), Event: t.Event, Expires: g.time()}
	default:
		g.instance(&t, cell)
		g.work(&t)
	}
	g.around(&t)
	return t
}

func next(entries []edda.Entry) uint64 {
	if len(entries) == 0 {
		return 1
	}
	return entries[len(entries)-1].N + 1
}

func (g *generator) instance(t *edda.Transition, cell *edda.Cell) {
	in := edda.Instance{Key: t.Key, Generation: 1, State: json.RawMessage(fmt.Sprintf(`{"v":%d}`, g.n))}
	if cell.Instance != nil {
		in.Revision, in.Held, in.Armed = cell.Instance.Revision, cell.Instance.Held, cell.Instance.Armed
	}
	in.Revision++
	in.Version = rapid.IntRange(0, 2).Draw(g.t, "version")
	in.Status = rapid.SampledFrom([]edda.Status{edda.StatusRunning, edda.StatusUndoing, edda.StatusDone}).Draw(g.t, "status")
	for _, e := range cell.Parked {
		t.Unpark = append(t.Unpark, e.N)
	}
	switch {
	case g.bool("hold"):
		t.Hold = &edda.Entry{N: next(cell.Held), Event: t.Event, DeadLetter: g.id("d")}
		in.Held = t.Hold.DeadLetter
	case len(cell.Held) > 0 && g.bool("release"):
		for _, e := range cell.Held {
			t.Release = append(t.Release, e.N)
		}
		in.Held = ""
	}
	if g.bool("move") {
		if cell.Instance != nil {
			t.Disarm = append(t.Disarm, in.Armed)
		}
		in.Armed = g.time()
		if !in.Armed.IsZero() {
			t.Arm = append(t.Arm, in.Armed)
		}
	}
	for n := range uint64(rapid.IntRange(0, 3).Draw(g.t, "parts")) {
		part := edda.Part{N: n * n * 300}
		if g.bool("write a part") {
			part.Data = json.RawMessage(fmt.Sprintf(`{"part":%d}`, g.n))
		}
		t.Parts = append(t.Parts, part)
	}
	in.Parts = len(withParts(cell.Parts, t.Parts))
	t.Instance = &in
}

func (g *generator) work(t *edda.Transition) {
	for range rapid.IntRange(0, 3).Draw(g.t, "works") {
		kind := rapid.SampledFrom([]edda.WorkKind{edda.WorkEffect, edda.WorkEffect, edda.WorkCommand}).Draw(g.t, "kind")
		t.Work = append(t.Work, edda.Work{ID: g.id("w"), Kind: kind, From: t.Key, Payload: json.RawMessage(`"<"`)})
	}
	for _, w := range append(slices.Clone(g.m.outbox), t.Work...) {
		if rapid.IntRange(0, 3).Draw(g.t, "settle") == 0 {
			t.Settled = append(t.Settled, w.ID)
		} else if rapid.IntRange(0, 9).Draw(g.t, "again") == 0 && w.From == t.Key && w.Kind == edda.WorkEffect {
			g.again[w.ID] = true
			t.Work = append(slices.DeleteFunc(t.Work, func(x edda.Work) bool { return x.ID == w.ID }), w)
		}
	}
}

func (g *generator) around(t *edda.Transition) {
	if g.bool("dead") {
		d := g.dead()
		t.Dead = &d
	}
	if dead := sorted(g.m.dead); len(dead) > 0 && g.bool("resolve") {
		t.Resolved = append(t.Resolved, rapid.SampledFrom(dead).Draw(g.t, "resolved").ID, "unknown")
	}
}

func (g *generator) dead() edda.DeadLetter {
	n := rapid.IntRange(0, 5).Draw(g.t, "dead id")
	return edda.DeadLetter{ID: fmt.Sprint("d", n), Time: g.time(), Event: g.event(), Raw: []byte{0, 255}}
}

// change draws one and brings the model to where it leads.
func (g *generator) change(rows []Row) (c Change) {
	for _, d := range g.m.dues() {
		if in := g.m.cell(d.Key).Instance; (in == nil || !in.Armed.Equal(d.Time)) && g.bool("stale") {
			c.Disarm = append(c.Disarm, d)
		}
	}
	g.m.disarm(c)
	for range rapid.IntRange(0, 4).Draw(g.t, "transitions") {
		t := g.transition()
		g.m.transition(t)
		c.Transitions = append(c.Transitions, t)
	}
	var delivered []string
	for _, r := range rows {
		if g.bool("delivered") && g.m.holds(r.Work) && !g.again[r.Work.ID] {
			c.Delivered, delivered = append(c.Delivered, r.ID), append(delivered, r.Work.ID)
		}
	}
	g.rest(&c)
	g.m.rest(c, delivered)
	return c
}

func (m *model) holds(w edda.Work) bool {
	return slices.ContainsFunc(m.outbox, func(x edda.Work) bool { return x.ID == w.ID })
}

func (g *generator) rest(c *Change) {
	pick := rapid.IntRange(0, 9).Draw(g.t, "rest")
	name := rapid.SampledFrom([]string{"a", "a\x01", "b"}).Draw(g.t, "name")
	position := edda.Checkpoint{Stream: name, Seq: uint64(g.n), Time: g.time(), Created: noon}
	switch pick {
	case 0:
		c.Checkpoints = append(c.Checkpoints, position)
	case 1:
		c.Positions = append(c.Positions, SagaPosition{Tenant: "t", Saga: name, Checkpoint: position})
	case 2:
		c.Schedules = append(c.Schedules, edda.ScheduleState{Saga: name, Name: "nightly", Last: g.time()})
	case 3:
		c.Manifests = append(c.Manifests, edda.Manifest{Saga: name, Version: g.n % 3, Hash: "h", Text: "saga: <x>", Loaded: noon})
	case 4:
		c.Dead = append(c.Dead, g.dead())
	case 5:
		c.Audits = append(c.Audits, Audit{Time: g.time(), By: "ann", Verb: "skip", Detail: g.id("a")})
	case 6:
		hour := rapid.IntRange(0, 5).Draw(g.t, "hour")
		c.Remove.Claims.Hour = noon.Add(time.Duration(hour) * time.Hour)
	case 7:
		c.Arm = append(c.Arm, Due{Time: noon.Add(2), Key: g.key()})
	default:
		id := rapid.SampledFrom([]string{"c1", "c2", "0195510d-e400-7abc-8def-0123456789ab"}).Draw(g.t, "command")
		if _, ok := g.m.claims[id]; ok {
			return
		}
		hour := rapid.IntRange(0, 5).Draw(g.t, "hour")
		c.Claims = append(c.Claims, edda.Claim{CommandID: id, Claimed: noon.Add(time.Duration(hour) * time.Hour), Owner: g.id("o")})
	}
}

// TestStoreIsItsModel draws changes, commits them singly and in flights, reopens
// now and then, and compares everything that can be read with the model.
func TestStoreIsItsModel(t *testing.T) {
	_, key := keysetFile(t)
	rapid.Check(t, func(r *rapid.T) {
		dir := t.TempDir()
		clock := noon
		o := Options{noSync: true, Now: func() time.Time { clock = clock.Add(-7 * time.Hour); return clock }} // it steps back
		if rapid.Bool().Draw(r, "encrypted") {
			o.Seal = key
		}
		db := open(t, dir, o)
		defer func() { db.stop() }()
		g := &generator{t: r, m: newModel()}
		for range rapid.IntRange(1, 4).Draw(r, "rounds") {
			rows := must(db.Outbox(ulid.ULID{}, 1000))
			flight(r, db, g, rows)
			compare(r, db, g.m)
			if g.bool("reopen") {
				db.stop()
				db = open(t, dir, o)
				compare(r, db, g.m)
			}
		}
	})
}

// flight submits a few changes without waiting, as a pipeline does.
func flight(r *rapid.T, db *opened, g *generator, rows []Row) {
	n := rapid.IntRange(1, 3).Draw(r, "flight")
	results := make(chan error, n)
	line := db.Pipeline()
	g.again = map[string]bool{}
	for range n {
		if err := line.Submit(context.Background(), g.change(rows), func(err error) { results <- err }); err != nil {
			r.Fatal(err)
		}
	}
	for range n {
		if err := <-results; err != nil {
			r.Fatal(err)
		}
	}
}

func compare(r *rapid.T, db *opened, m *model) {
	r.Helper()
	equal := func(what string, got, want any) {
		r.Helper()
		if a, b := must(json.Marshal(got)), must(json.Marshal(want)); bytes.Equal(a, b) {
			return // much cheaper than the comparison that explains
		}
		if d := gocmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			r.Fatalf("%s (-want +got):\n%s", what, d)
		}
	}
	for _, err := range db.examine(context.Background(), nil, true).Findings {
		r.Fatal(err)
	}
	view := must(db.View())
	defer view.Close()
	for k, cell := range m.cells {
		equal("cell "+k.String(), must(view.Cell(k)), *cell)
		equal("history "+k.String(), unplaced(must(db.History(k, 1000))), m.history[k])
	}
	compareOutbox(r, db, m, equal)
	compareLists(db, m, equal)
	for _, q := range []Query{
		{}, {Tenant: "a"}, {Saga: "order"}, {Tenant: "a", Saga: "order"}, {Status: edda.StatusDone, Limit: 2},
		{Saga: "order", After: edda.Key{Tenant: "a", Saga: "b"}, Limit: 2}, {Tenant: "a", After: edda.Key{Saga: "z"}},
	} {
		equal(fmt.Sprintf("instances %+v", q), must(db.Instances(q)), m.instances(q))
	}
	equal("counts", db.Counts(), m.counts())
	compareParked(db, m, equal)
}

// compareParked holds the numbers that an open store keeps against what it
// holds, and so do those that it finds when it opens.
func compareParked(db *opened, m *model, equal func(string, any, any)) {
	want, all := map[string]int{}, 0
	for k, cell := range m.cells {
		want[k.Tenant] += len(cell.Parked)
		all += len(cell.Parked)
	}
	for tenant, n := range want {
		equal("parked of "+tenant, db.Parked(tenant), n)
	}
	equal("parked", db.ParkedInAll(), all)
}

func unplaced(records []Record) []Record {
	for i := range records {
		records[i].Commit, records[i].N = 0, 0
	}
	return records
}

func compareOutbox(r *rapid.T, db *opened, m *model, equal func(string, any, any)) {
	var works []edda.Work
	var last ulid.ULID
	for {
		rows := must(db.Outbox(last, 3)) // in pages
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			if row.ID.Compare(last) <= 0 {
				r.Fatalf("outbox row %s after %s", row.ID, last)
			}
			works, last = append(works, row.Work), row.ID
		}
	}
	equal("outbox", works, m.outbox)
	size, _ := db.OutboxSize()
	equal("outbox size", size, len(m.outbox))
	kinds := map[edda.WorkKind]int{}
	for _, w := range m.outbox {
		kinds[w.Kind]++
	}
	for _, k := range []edda.WorkKind{edda.WorkEffect, edda.WorkCommand, edda.WorkFact, edda.WorkEnd} {
		equal("outboxed "+string(k), db.Outboxed(k), kinds[k])
	}
	waits := 0
	for _, w := range m.outbox {
		got, ok := db.Waiting(w.ID)
		equal("waiting "+w.ID, ok, w.Kind == edda.WorkEffect)
		if ok {
			waits++
			equal("waiting "+w.ID, got, w)
		}
	}
	equal("all that wait", len(db.index.waiting), waits)
}

func compareLists(db *opened, m *model, equal func(string, any, any)) {
	equal("checkpoints", must(db.Checkpoints()), sorted(m.shared))
	equal("positions", must(db.Positions()), sorted(m.positions))
	equal("schedules", must(db.Schedules()), sorted(m.schedules))
	equal("manifests", must(db.Manifests()), sorted(m.manifests))
	equal("audits", must(db.Audits(1000)), m.audits)
	due, next, err := db.Due(noon.Add(1), 1000)
	all := m.dues()
	n := sort.Search(len(all), func(i int) bool { return all[i].Time.After(noon.Add(1)) })
	equal("due", due, all[:n])
	equal("due error", err, nil)
	all = append(all, Due{})
	equal("next due", next, all[n].Time)
	equal("dead letters", must(db.DeadLetters("", 1000)), m.letters())
	for _, id := range []string{"c1", "c2", "0195510d-e400-7abc-8def-0123456789ab"} {
		claim, found, err := db.Claim("", id)
		want, ok := m.claims[id]
		equal("claim found", found, ok)
		equal("claim", claim, want)
		equal("claim error", err, nil)
	}
}

func (m *model) letters() []edda.DeadLetter {
	out := sorted(m.dead)
	sort.SliceStable(out, func(i, j int) bool { return out[i].Time.Before(out[j].Time) })
	return out
}
