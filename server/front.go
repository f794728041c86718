package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"edda"
)

const (
	// ShardHeader names the shard that a call means, as a number from 0.
	ShardHeader = "Edda-Shard"
	// ShardsHeader is in the refusal of a call that must name a shard, and is the number of shards.
	ShardsHeader = "Edda-Shards"
)

// clusterPattern is the route of the status.
const clusterPattern = "GET /cluster"

// Front is the server of a node whose cluster has several shards. Each shard has a server of its own in this node, which
// is the owner's or a standby's and changes with that. The front has the addresses, and finds the shard of a call:
//
//   - that of the header Edda-Shard;
//   - that of the instance in the path;
//   - each shard, for a list or an act on all of them;
//   - the shard that has a dead letter.
//
// A shard's server judges the caller. So the front lets through what it does not answer itself.
type Front struct {
	*Server
	shards []mounted
}

// mounted is the place of one shard's server.
type mounted struct{ now atomic.Pointer[hosted] }

// hosted is a server behind a front, and its calls under way.
type hosted struct {
	*Server
	mu    sync.Mutex // guards the fields below
	calls int
	ended chan struct{} // closed when the last call has ended, after the server has left the front; nil before
}

// NewFront makes a front that does not listen yet. Of the options those of addresses and callers count, and Tenant,
// NoTenancy, Metrics and Register.
func NewFront(o Options, shards int) (*Front, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	f := &Front{shards: make([]mounted, shards)}
	if o.Metrics != nil {
		o.Metrics = shardMetrics{o.Metrics, f}
	}
	s := &Server{options: o, status: f.statusOfAll}
	f.Server = s
	s.routes = &routes{mux: http.NewServeMux(), allow: s.allowed}
	config := describe(o.Build)
	config.OpenAPIPath, config.SchemasPath = "", "" // a shard describes the API
	s.api = humago.New(s.routes, config)
	s.probes(s.routes)
	huma.Get(s.api, "/cluster", func(ctx context.Context, _ *struct{}) (*body[ClusterStatus], error) {
		return &body[ClusterStatus]{f.clusterOfAll(ctx)}, nil
	}, summary("Show the nodes of the cluster", "cluster"))
	mux := http.NewServeMux()
	for _, pattern := range s.routes.list {
		if pattern != clusterPattern { // of one shard, if the call names it
			mux.Handle(pattern, s.routes)
		}
	}
	f.spread(mux)
	s.servers(mux)
	return f, nil
}

// spread registers how calls find their shards.
func (f *Front) spread(mux *http.ServeMux) {
	handle := func(pattern string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if shard, said, err := f.named(r); err != nil {
				problem(w, http.StatusUnprocessableEntity, err.Error())
			} else if said {
				f.pass(w, r, shard)
			} else {
				h(w, r)
			}
		})
	}
	first := func(w http.ResponseWriter, r *http.Request) { f.pass(w, r, 0) }
	handle("/", first)
	handle("/v1/instances/{saga}/{key}", f.ofKey)
	handle("/v1/instances/{saga}/{key}/{act...}", f.ofKey)
	handle("/v1/events", f.anywhere)
	handle(clusterPattern, f.routes.ServeHTTP)
	handle("GET /info", f.info)
	handle("GET /admin/replay", f.replays)
	handle("POST /admin/replay", f.replay)
	for pattern, g := range gatherings() {
		handle(pattern, func(w http.ResponseWriter, r *http.Request) { f.gather(w, r, g) })
	}
	handle("GET /v1/deadletters/{id}", f.ofLetter)
	handle("POST /v1/deadletters/{id}/{verb}", f.ofLetter)
	handle("POST /v1/deadletters/{verb}", f.portions)
	mux.HandleFunc("POST /admin/drain", f.drain) // of the whole node, whatever shard is named
	handle("POST /admin/reload", f.reload)
	for _, pattern := range []string{"POST /cluster/finalize", "POST /cluster/forget/{node}"} {
		handle(pattern, f.each)
	}
	handle("POST /cluster/manifests", f.deploy)
	for _, pattern := range []string{
		"POST /cluster/move", "POST /v1/backup", "POST /admin/gc", "POST /admin/backup", "POST /admin/doctor", "POST /admin/compact",
	} {
		handle(pattern, f.unnamed)
	}
}

// named returns the shard that a call names.
func (f *Front) named(r *http.Request) (shard int, said bool, err error) {
	text := r.Header.Get(ShardHeader)
	if text == "" {
		return 0, false, nil
	}
	shard, err = strconv.Atoi(text)
	if err != nil || shard < 0 || shard >= len(f.shards) {
		return 0, true, fmt.Errorf("shard %.20q: this cluster has the shards 0 to %d", text, len(f.shards)-1)
	}
	return shard, true, nil
}

// oneShard refuses a call that names a shard which a server without a front does not have.
func (s *Server) oneShard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.Header.Get(ShardHeader); text != "" && s.options.Front == nil && text != strconv.Itoa(s.options.Shard) {
			problem(w, http.StatusUnprocessableEntity, fmt.Sprintf("shard %.20q: this process has one store, that of shard %d", text, s.options.Shard))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// unnamed answers a call that is about one store and names none.
func (f *Front) unnamed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set(ShardsHeader, strconv.Itoa(len(f.shards)))
	problem(w, http.StatusUnprocessableEntity, fmt.Sprintf("this cluster has %d stores: say which one is meant, from 0 to %d, with --shard or in the header %s",
		len(f.shards), len(f.shards)-1, strings.ToLower(ShardHeader)))
}

// ofKey passes a call to the shard of the instance in its path.
func (f *Front) ofKey(w http.ResponseWriter, r *http.Request) {
	f.pass(w, r, f.shardOf(r, r.PathValue("saga"), r.PathValue("key")))
}

// shardOf is the shard of an instance that a call is about.
func (f *Front) shardOf(r *http.Request, saga, key string) int {
	k := edda.Key{Saga: saga, Correlation: key}
	if !f.options.NoTenancy {
		k.Tenant = cmp.Or(r.Header.Get(tenantHeader), f.options.Tenant)
	}
	i := 0
	for !(edda.Shard{Index: i, Of: len(f.shards)}).Has(k) {
		i++
	}
	return i
}

// anywhere passes a call that publishes to a shard that this node owns, or else to one that has an owner: all stores read
// all events.
func (f *Front) anywhere(w http.ResponseWriter, r *http.Request) {
	owned := 0
	for i := range f.shards {
		s := f.shards[i].now.Load()
		if s == nil {
			continue
		}
		if s.forward == nil {
			f.pass(w, r, i)
			return
		}
		if _, ok := s.forward.owner(); ok {
			owned = i
		}
	}
	f.pass(w, r, owned)
}

// drain stops this node: it asks all shards, and answers with the progress of all. The owned ones are first: a standby
// ends at once, and the node with it. A shard without a server has ended already, or ends with the others.
func (f *Front) drain(w http.ResponseWriter, r *http.Request) {
	var owned, copied []int
	for i := range f.shards {
		if s := f.shards[i].now.Load(); s != nil && s.forward == nil {
			owned = append(owned, i)
		} else {
			copied = append(copied, i)
		}
	}
	var all Drain
	var missing *recorded
	for _, i := range append(owned, copied...) {
		name := fmt.Sprintf("shard %d", i)
		a := f.ask(r, i)
		var one Drain
		if a.status == http.StatusServiceUnavailable {
			missing = a
			continue
		}
		if !f.decode(w, a, i, "", &one) {
			return
		}
		all.add(one, name)
	}
	if !all.Draining {
		missing.copyTo(w)
		return
	}
	answer(w, http.StatusOK, all)
}

// add adds the progress of a part of the process.
func (d *Drain) add(part Drain, name string) {
	d.Draining = d.Draining || part.Draining
	d.Stage = cmp.Or(d.Stage, part.Stage)
	d.Outbox += part.Outbox
	for _, component := range part.Stopped {
		d.Stopped = append(d.Stopped, name+": "+component)
	}
	for _, component := range part.Waiting {
		d.Waiting = append(d.Waiting, name+": "+component)
	}
}

// each makes a call at each shard in turn, and answers with the first failure or else with the last answer.
func (f *Front) each(w http.ResponseWriter, r *http.Request) {
	if body, ok := whole(w, r); ok {
		f.inTurn(r, body, nil).copyTo(w)
	}
}

// reload has each shard reload in turn. The owners read the configurations of their nodes, so it fails if these name
// different tenants.
func (f *Front) reload(w http.ResponseWriter, r *http.Request) {
	body, ok := whole(w, r)
	if !ok {
		return
	}
	var served []string // which tenants, with the shards and nodes that serve them
	by := map[string][]string{}
	a := f.inTurn(r, body, func(shard int, a *recorded) {
		var one Reload
		if json.Unmarshal(a.body.Bytes(), &one) != nil || one.Tenants == nil { // of an owner that is not upgraded yet
			return
		}
		tenants := cmp.Or(strings.Join(one.Tenants, ", "), "all tenants")
		if by[tenants] == nil {
			served = append(served, tenants)
		}
		by[tenants] = append(by[tenants], fmt.Sprintf("shard %d on node %s", shard, one.Node))
	})
	if a.status < 300 && len(served) > 1 {
		for i, tenants := range served {
			served[i] = fmt.Sprintf("%s for %s", strings.Join(by[tenants], ", "), tenants)
		}
		problem(w, http.StatusConflict, fmt.Sprintf("the shards have reloaded and serve different tenants: %s; name the same tenants in the configuration of each node, reload again, and send no events of new tenants before",
			strings.Join(served, "; ")))
		return
	}
	a.copyTo(w)
}

// takenBefore explains the failure of a shard behind others.
const takenBefore = "the shards before it have taken the call, and take it again without harm: repeat it"

// whole reads the body of a call that several shards get.
func whole(w http.ResponseWriter, r *http.Request) (body []byte, ok bool) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		problem(w, http.StatusRequestEntityTooLarge, err.Error())
	}
	return body, err == nil
}

// inTurn makes a call at each shard, and returns the first failure or else the last answer. taken gets each answer before
// that; it may be nil.
func (f *Front) inTurn(r *http.Request, body []byte, taken func(shard int, a *recorded)) *recorded {
	var a, missing *recorded
	after := ""
	for i := range f.shards {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		asked := f.ask(again, i)
		if asked.status == http.StatusNotFound { // of a forget: this shard has forgotten the node already
			missing = asked
			continue
		}
		if a = asked; a.status >= 300 {
			a.explain(i, after)
			break
		}
		if taken != nil {
			taken(i, a)
		}
		after = takenBefore
	}
	return cmp.Or(a, missing)
}

// ofLetter passes a call to the shard that has the dead letter in its path.
func (f *Front) ofLetter(w http.ResponseWriter, r *http.Request) {
	look := r.Clone(r.Context())
	look.Method = http.MethodGet
	id := r.PathValue("id")
	look.URL.Path, look.URL.RawPath, look.URL.RawQuery = "/v1/deadletters/"+id, "/v1/deadletters/"+url.PathEscape(id), ""
	shard, a := f.find(look)
	if a.status != http.StatusOK {
		a.copyTo(w)
		return
	}
	f.pass(w, r, shard)
}

// find asks the shards until one has what a GET asks for. Otherwise the answer is one that is no 404, if there is any: a
// shard that does not answer may have it.
func (f *Front) find(r *http.Request) (shard int, missing *recorded) {
	for i := range f.shards {
		a := f.ask(r, i)
		if a.status == http.StatusOK {
			return i, a
		}
		if missing == nil || missing.status == http.StatusNotFound {
			missing = a
		}
	}
	return 0, missing
}

// pass has a shard answer a call.
func (f *Front) pass(w http.ResponseWriter, r *http.Request, shard int) {
	s := f.shards[shard].begin()
	if s == nil {
		unavailable(w, fmt.Sprintf("shard %d is about to start in this node: try again", shard))
		return
	}
	defer s.end()
	r.Header.Set(ShardHeader, strconv.Itoa(shard)) // for the node that the call is forwarded to
	s.Handler().ServeHTTP(w, r)
}

// begin returns the server of a shard and counts a call of it; nil while there is none.
func (m *mounted) begin() *hosted {
	for {
		s := m.now.Load()
		if s == nil {
			return nil
		}
		s.mu.Lock()
		if s.ended == nil {
			s.calls++
			s.mu.Unlock()
			return s
		}
		s.mu.Unlock()
		if m.now.Load() == s { // it is about to leave
			return nil
		}
	}
}

func (s *hosted) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls--; s.calls == 0 && s.ended != nil {
		close(s.ended)
	}
}

// run keeps a server mounted until ctx ends. Then it waits shutdownWait for the calls in flight.
func (m *mounted) run(ctx context.Context, s *Server) error {
	h := &hosted{Server: s}
	m.now.Store(h)
	<-ctx.Done()
	h.mu.Lock()
	h.ended = make(chan struct{})
	if h.calls == 0 {
		close(h.ended)
	}
	h.mu.Unlock()
	m.now.CompareAndSwap(h, nil)
	select {
	case <-h.ended:
	case <-time.After(shutdownWait):
	}
	return nil
}

// maxRecorded bounds an answer that the front takes apart.
const maxRecorded = 64 << 20

// recorded is the answer of a shard, in memory.
type recorded struct {
	status   int
	header   http.Header
	body     bytes.Buffer
	tooLarge bool // the body lacks something
}

func (a *recorded) Header() http.Header { return a.header }

func (a *recorded) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *recorded) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.body.Len()+len(b) > maxRecorded {
		a.tooLarge = true
		return 0, errors.New("the answer is too large")
	}
	return a.body.Write(b)
}

// ask sends a copy of a call to a shard. A GET goes without its body, because several shards would read it at once.
func (f *Front) ask(r *http.Request, shard int) (a *recorded) {
	r = r.Clone(r.Context())
	if r.Method == http.MethodHead { // an answer without a body cannot be taken apart
		r.Method = http.MethodGet
	}
	if r.Method == http.MethodGet {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	a = &recorded{header: http.Header{}}
	defer func() {
		switch broken := recover(); {
		case broken != nil && broken != http.ErrAbortHandler:
			panic(broken)
		case a.tooLarge:
			a = &recorded{header: http.Header{}, tooLarge: true}
			problem(a, http.StatusUnprocessableEntity, fmt.Sprintf("the answer has more than %d MiB: name the shard, with --shard or in the header %s", maxRecorded>>20, strings.ToLower(ShardHeader)))
		case broken != nil: // the shard's owner broke off, or the caller has gone
			a = brokenOff(r.Method)
		}
	}()
	f.pass(a, r, shard)
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if a.status == http.StatusTemporaryRedirect { // to the owner of the shard, which would gather again
		a = &recorded{header: http.Header{}}
		problem(a, http.StatusMisdirectedRequest, fmt.Sprintf("a caller whose certificate says who it is asks each shard by itself, with the header %s, or shows a token", strings.ToLower(ShardHeader)))
	}
	return a
}

// brokenOff is the answer of a shard whose owner broke off.
func brokenOff(method string) *recorded {
	a := &recorded{header: http.Header{}}
	if method == http.MethodGet {
		unavailable(a, "the answer of the shard's owner broke off: try again")
		return a
	}
	problem(a, http.StatusBadGateway, "the answer of the shard's owner broke off: look whether the call was taken")
	return a
}

// explain says in a problem which shard has it, and what the shards before it have done.
func (a *recorded) explain(shard int, after string) {
	var p huma.ErrorModel
	if json.Unmarshal(a.body.Bytes(), &p) != nil || p.Detail == "" {
		return
	}
	p.Detail = fmt.Sprintf("shard %d: %s", shard, p.Detail)
	if after != "" {
		p.Detail += "; " + after
	}
	a.body.Reset()
	_ = json.NewEncoder(&a.body).Encode(&p)
	a.header.Del("Content-Length")
}

func (a *recorded) copyTo(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // an error here means that the client has disconnected
}

// statusOfAll is the status of all shards in this node.
func (f *Front) statusOfAll(ctx context.Context) ProcessStatus {
	all := ProcessStatus{Components: map[string]ComponentStatus{}}
	for i := range f.shards {
		name := fmt.Sprintf("shard %d", i)
		s := f.shards[i].now.Load()
		if s == nil {
			all.NotReady = name + " is about to start"
			all.Components[name] = ComponentStatus{State: "down", Problem: all.NotReady}
			continue
		}
		one := s.status(ctx)
		if one.Stuck != "" {
			all.Stuck = name + ": " + one.Stuck
		}
		if one.NotReady != "" {
			all.NotReady = name + ": " + one.NotReady
		}
		for component, c := range one.Components {
			all.Components[name+": "+component] = c
		}
	}
	return all
}

// clusterOfAll is the status of the cluster, as the shards in this node know it.
func (f *Front) clusterOfAll(ctx context.Context) ClusterStatus {
	var all ClusterStatus
	nodes := map[string]*ClusterNode{}
	for i := range f.shards {
		s := f.shards[i].now.Load()
		if s == nil {
			all.Shards = append(all.Shards, ClusterShard{Shard: i, Nodes: []ClusterNode{}, Problem: "it is about to start in this node"})
			continue
		}
		one := s.options.Cluster.Status(ctx)
		all.Name, all.Node = one.Name, one.Node
		if all.Level == 0 || one.Level < all.Level {
			all.Level = one.Level
		}
		all.Shards = append(all.Shards, ClusterShard{
			Shard: i, StoreID: one.StoreID, Owner: one.Owner, Epoch: one.Epoch, LSN: one.LSN, Nodes: one.Nodes, Problem: one.Problem,
		})
		for _, n := range one.Nodes {
			merge(nodes, n, n.Node == one.Owner, i)
		}
	}
	for _, s := range all.Shards {
		if s.Problem != "" && all.Problem == "" {
			all.Problem = fmt.Sprintf("shard %d: %s", s.Shard, s.Problem)
		}
	}
	if all.Problem == "" {
		all.Problem = unlike(all.Shards)
	}
	all.Nodes = []ClusterNode{}
	for _, n := range nodes {
		all.Nodes = append(all.Nodes, *n)
	}
	slices.SortFunc(all.Nodes, func(a, b ClusterNode) int { return strings.Compare(a.Node, b.Node) })
	return all
}

// unlike says which shards run manifests of different content, as after a deployment that broke off; empty if none do.
func unlike(shards []ClusterShard) string {
	first := ""
	for _, s := range shards {
		for _, n := range s.Nodes {
			if n.Node != s.Owner || n.Manifests == "" {
				continue
			}
			runs := fmt.Sprintf("shard %d runs revision %d (%s)", s.Shard, n.Revision, n.Manifests)
			switch {
			case first == "":
				first = runs
			case !strings.HasSuffix(first, "("+n.Manifests+")"):
				return fmt.Sprintf("the shards run different manifests: %s, and %s; deploy the right ones again", first, runs)
			}
		}
	}
	return ""
}

// merge adds what one shard knows of a node to what the others know. The places in the log are those of a shard.
func merge(nodes map[string]*ClusterNode, n ClusterNode, owns bool, shard int) {
	n.Epoch, n.LSN, n.Lag, n.Revision, n.Manifests = 0, 0, 0, 0, ""
	if n.Problem != "" {
		n.Problem = fmt.Sprintf("shard %d: %s", shard, n.Problem)
	}
	was := nodes[n.Node]
	if was == nil {
		was = &n
		nodes[n.Node] = was
	}
	switch {
	case owns:
		was.Owns, was.Role = append(was.Owns, shard), NodeOwner
	case n.Role == NodeJoining && was.Role != NodeOwner:
		was.Role = NodeJoining
	}
	if n.State == NodeDead || n.State == NodeUnknown && was.State == NodeAlive {
		was.State = n.State
	}
	if was.Problem == "" {
		was.Problem = n.Problem
	}
	was.BeatAge = max(was.BeatAge, n.BeatAge)
}
