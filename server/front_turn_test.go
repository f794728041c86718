package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"edda/internal/testkit"
)

// TestManifestsAreJudgedByAllShardsFirst: what one of them refuses, such as for a secret that its node lacks, changes none.
func TestManifestsAreJudgedByAllShardsFirst(t *testing.T) {
	var mu sync.Mutex // guards got
	var got []string
	shard := func(i int, refuses string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			text := testkit.Value[[]byte](t)(io.ReadAll(r.Body))
			query := r.URL.Query()
			if query.Has("time") == query.Has("check") {
				t.Errorf("the query %s: want the time of the deployment when it is taken in", r.URL.RawQuery)
			}
			query.Del("time")
			mu.Lock()
			got = append(got, fmt.Sprintf("%d %s %s", i, query.Encode(), text))
			mu.Unlock()
			if r.URL.Query().Get("check") == refuses {
				problem(w, http.StatusUnprocessableEntity, "the manifests have errors")
				return
			}
			answer(w, http.StatusOK, Deployed{Revision: 2, Changed: true, Hash: fmt.Sprint("h", i)})
		}
	}
	for name, tt := range map[string]struct {
		query, refuses string // of the second shard: check=…
		calls          []string
		code           int
		says           string
	}{
		"a deployment": {"?skip_tests=true", "never", []string{"0 check=true&skip_tests=true F", "1 check=true&skip_tests=true F", "0 on=2-h0&skip_tests=true F", "1 on=2-h1&skip_tests=true F",
			"0 check=true&on=2-h0&skip_tests=true F", "1 check=true&on=2-h1&skip_tests=true F"},
			http.StatusOK, `"revision":2`},
		"a judgement":        {"?check=true", "never", []string{"0 check=true F", "1 check=true F"}, http.StatusOK, `"revision":2`},
		"refused":            {"", "true", []string{"0 check=true F", "1 check=true F"}, http.StatusUnprocessableEntity, `"shard 1: the manifests have errors"`},
		"refused in the act": {"", "", []string{"0 check=true F", "1 check=true F", "0 on=2-h0 F", "1 on=2-h1 F"}, http.StatusUnprocessableEntity, "the shards before it have taken the call"},
	} {
		t.Run(name, func(t *testing.T) {
			got = nil
			a := callFront(frontOf(t, shard(0, "never"), shard(1, tt.refuses)), "POST", "/cluster/manifests"+tt.query, "F")
			slices.Sort(got[:2]) // these are asked at once, as are those in the end
			slices.Sort(got[min(4, len(got)):])
			if a.Code != tt.code || !strings.Contains(a.Body.String(), tt.says) || !slices.Equal(got, tt.calls) {
				t.Errorf("%d %s\ncalls %q\nwant  %q", a.Code, a.Body, got, tt.calls)
			}
		})
	}
}

// TestShardsJudgeManifestsAtOnce: one after the other took longer than the call. It may take longer than others, too.
func TestShardsJudgeManifestsAtOnce(t *testing.T) {
	var judging sync.WaitGroup
	judging.Add(2)
	shard := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("check") {
			judging.Done()
			judging.Wait() // for the other shard
		}
		answer(w, http.StatusOK, Deployed{Revision: 2})
	}
	f := frontOf(t, shard, shard)
	w := &patient{ResponseRecorder: httptest.NewRecorder()}
	f.Handler().ServeHTTP(w, httptest.NewRequest("POST", "http://127.0.0.1/cluster/manifests?check=true", strings.NewReader("F")))
	if w.Code != http.StatusOK || time.Until(w.deadline) < 2*writeTimeout {
		t.Errorf("%d %s; it may be written until %s", w.Code, w.Body, w.deadline)
	}
}

// patient notes until when an answer may be written.
type patient struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (p *patient) SetWriteDeadline(t time.Time) error {
	p.deadline = t
	return nil
}

// deployable is a shard that takes manifests in as a process does.
type deployable struct {
	runs    Deployed
	content string
	meets   func() // is called before the next files are taken in
	at      []string
}

func (d *deployable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	q := r.URL.Query()
	if meets := d.meets; meets != nil && q.Get("check") == "" {
		d.meets = nil
		meets()
	}
	out := d.runs
	switch {
	case d.content == string(body):
	case q.Get("on") != "" && q.Get("on") != out.On():
		problem(w, http.StatusConflict, "another deployment came meanwhile")
		return
	case q.Get("check") == "true":
		out.Since = time.Time{}
	default:
		d.at = append(d.at, q.Get("time"))
		since, _ := time.Parse(time.RFC3339Nano, q.Get("time"))
		d.runs, d.content = Deployed{Revision: out.Revision + 1, Hash: string(body), Time: since, Since: since}, string(body)
		out = d.runs
	}
	answer(w, http.StatusOK, out)
}

// TestOfTwoDeploymentsAtOnceOneIsRefused: before, both succeeded, and the shards ran other manifests for good.
func TestOfTwoDeploymentsAtOnceOneIsRefused(t *testing.T) {
	first := Deployed{Revision: 1, Hash: "F"}
	shards := []*deployable{{runs: first, content: "F"}, {runs: first, content: "F"}}
	f := frontOf(t, shards[0].ServeHTTP, shards[1].ServeHTTP)
	deploy := func(files string) *httptest.ResponseRecorder {
		return callFront(f, "POST", "/cluster/manifests", files)
	}
	shards[1].meets = func() {
		if w := deploy("B"); w.Code != http.StatusOK {
			t.Errorf("the second deployment: %d %s", w.Code, w.Body)
		}
	}
	if w := deploy("A"); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "shard 1: another deployment came meanwhile; the shards before it") {
		t.Errorf("the first deployment: %d %s", w.Code, w.Body)
	}
	if w := deploy("A"); w.Code != http.StatusOK || shards[0].content != "A" || shards[1].content != "A" {
		t.Errorf("the first deployment again: %d %s; shards run %q and %q", w.Code, w.Body, shards[0].content, shards[1].content)
	}
}

// TestADeploymentSaysIfAnotherHasCome: before, it answered 200 although the other one had come to the shard before the last.
func TestADeploymentSaysIfAnotherHasCome(t *testing.T) {
	first := Deployed{Revision: 1, Hash: "F"}
	shards := []*deployable{{runs: first, content: "F"}, {runs: first, content: "F"}}
	f := frontOf(t, shards[0].ServeHTTP, shards[1].ServeHTTP)
	there, ended := make(chan struct{}), make(chan struct{})
	second := make(chan *httptest.ResponseRecorder)
	shards[1].meets = func() { // the first deployment, behind shard 0
		shards[1].meets = func() { // the second one, there too
			close(there)
			<-ended
		}
		go func() { second <- callFront(f, "POST", "/cluster/manifests", "B") }()
		<-there
	}
	w := callFront(f, "POST", "/cluster/manifests", "A")
	if w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "shard 0: another deployment came meanwhile") {
		t.Errorf("the first deployment: %d %s; the shards run %q and %q", w.Code, w.Body, shards[0].content, shards[1].content)
	}
	close(ended)
	if w := <-second; w.Code != http.StatusConflict {
		t.Errorf("the second deployment: %d %s", w.Code, w.Body)
	}
}

// TestADeploymentThatBrokeOffGoesOnWithItsTime: a new schedule has the same first time in all shards. A rollback to files
// that one of them still runs is no such deployment: its schedules would start since long ago.
func TestADeploymentThatBrokeOffGoesOnWithItsTime(t *testing.T) {
	year := func(n int) time.Time { return time.Date(n, 1, 1, 11, 59, 59, 8e8, time.UTC) }
	for name, tt := range map[string]struct {
		shards []Deployed // the hash is the files, too
		goesOn bool
	}{
		"it broke off":                     {[]Deployed{{Hash: "F", Time: year(2025)}, {Hash: "A", Time: year(2026)}, {Hash: "F", Time: year(2025)}}, true},
		"it broke off twice":               {[]Deployed{{Hash: "A", Time: year(2025)}, {Hash: "A", Time: year(2026)}, {Hash: "F", Time: year(2025)}}, true},
		"back to older files":              {[]Deployed{{Hash: "B", Time: year(2027)}, {Hash: "A", Time: year(2026)}, {Hash: "A", Time: year(2026)}}, false},
		"back while another one broke off": {[]Deployed{{Hash: "B", Time: year(2027)}, {Hash: "A", Time: year(2026)}, {Hash: "F", Time: year(2025)}}, false},
		"an owner says no time":            {[]Deployed{{Hash: "F"}, {Hash: "A", Time: year(2026)}, {Hash: "F", Time: year(2025)}}, false},
		"new files":                        {[]Deployed{{Hash: "F", Time: year(2026)}, {Hash: "F", Time: year(2026)}, {Hash: "F", Time: year(2026)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var shards []*deployable
			var handlers []http.HandlerFunc
			for _, d := range tt.shards {
				if d.Hash == "A" {
					d.Since = d.Time
				}
				s := &deployable{runs: d, content: d.Hash}
				shards, handlers = append(shards, s), append(handlers, s.ServeHTTP)
			}
			before := time.Now()
			w := callFront(frontOf(t, handlers...), "POST", "/cluster/manifests", "A")
			if w.Code != http.StatusOK {
				t.Errorf("%d %s", w.Code, w.Body)
			}
			for i, s := range shards {
				ran := tt.shards[i].Hash == "A"
				if ran != (s.at == nil) || !ran && (tt.goesOn && !s.runs.Time.Equal(year(2026)) || !tt.goesOn && s.runs.Time.Before(before)) {
					t.Errorf("shard %d runs %s since %s", i, s.content, s.runs.Time)
				}
			}
		})
	}
}

// TestADeploymentAnswersForAllShards: before, the answer was that of the last one, which may have run the files already.
func TestADeploymentAnswersForAllShards(t *testing.T) {
	both, one := Problem{File: "a.yaml", Warning: true, Message: "it never ends"}, Problem{Warning: true, Message: "shard 0 begins late"}
	shard := func(d Deployed) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, d) }
	}
	f := frontOf(t,
		shard(Deployed{Revision: 3, Changed: true, Hash: "A", Problems: []Problem{both, one}}),
		shard(Deployed{Revision: 5, Changed: true, Hash: "A", Problems: []Problem{both}}),
		shard(Deployed{Revision: 4, Hash: "A"}))
	for _, query := range []string{"", "?check=true"} {
		var d Deployed
		w := callFront(f, "POST", "/cluster/manifests"+query, "A")
		testkit.Must(t, json.Unmarshal(w.Body.Bytes(), &d))
		if !d.Changed || d.Revision != 3 || !slices.Equal(d.Problems, []Problem{both, one}) {
			t.Errorf("%q: %+v", query, d)
		}
	}
}

// TestANodeIsForgottenWhereItIsKnown: a call that a shard refused can be made again.
func TestANodeIsForgottenWhereItIsKnown(t *testing.T) {
	gone := func(w http.ResponseWriter, _ *http.Request) {
		problem(w, http.StatusNotFound, "the cluster has no such node")
	}
	known := func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, ClusterForgotten{"n3"}) }
	if got := callFront(frontOf(t, gone, known, gone), "POST", "/cluster/forget/n3", ""); got.Code != http.StatusOK {
		t.Errorf("%d %s", got.Code, got.Body)
	}
	if got := callFront(frontOf(t, gone, gone), "POST", "/cluster/forget/n3", ""); got.Code != http.StatusNotFound {
		t.Errorf("no shard knows it: %d %s", got.Code, got.Body)
	}
}

// TestAReloadFailsIfShardsServeDifferentTenants: each owner reads the configuration of its node, and a new tenant that one of
// them lacks would be served in a part of the shards alone.
func TestAReloadFailsIfShardsServeDifferentTenants(t *testing.T) {
	shard := func(node string, tenants ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			answer(w, http.StatusOK, Reload{Tenants: tenants, Node: node})
		}
	}
	all := []string{}
	for name, tt := range map[string]struct {
		shards []http.HandlerFunc
		code   int
		says   []string
	}{
		"the same":                 {[]http.HandlerFunc{shard("n1", "acme", "beta"), shard("n2", "acme", "beta")}, http.StatusOK, []string{`"tenants":["acme","beta"]`}},
		"all":                      {[]http.HandlerFunc{shard("n1", all...), shard("n2", all...)}, http.StatusOK, nil},
		"an owner of before":       {[]http.HandlerFunc{shard("n1", "acme"), shard("n2")}, http.StatusOK, nil},
		"a node without new ones":  {[]http.HandlerFunc{shard("n1", "acme", "beta"), shard("n2", "acme"), shard("n1", "acme", "beta")}, http.StatusConflict, []string{"shard 0 on node n1, shard 2 on node n1 for acme, beta; shard 1 on node n2 for acme; ", "reload again"}},
		"all, and some":            {[]http.HandlerFunc{shard("n1", all...), shard("n2", "acme")}, http.StatusConflict, []string{"shard 0 on node n1 for all tenants"}},
		"a refusal comes as it is": {[]http.HandlerFunc{shard("n1", "acme"), func(w http.ResponseWriter, _ *http.Request) { problem(w, http.StatusUnprocessableEntity, "no") }}, http.StatusUnprocessableEntity, []string{"shard 1: no; " + takenBefore}},
	} {
		t.Run(name, func(t *testing.T) {
			got := callFront(frontOf(t, tt.shards...), "POST", "/admin/reload", "")
			if got.Code != tt.code {
				t.Errorf("%d %s", got.Code, got.Body)
			}
			for _, text := range tt.says {
				if !strings.Contains(got.Body.String(), text) {
					t.Errorf("it does not say %q: %s", text, got.Body)
				}
			}
		})
	}
}

// TestTheStatusSaysThatShardsRunDifferentManifests: their revisions count by themselves, so only the content tells.
func TestTheStatusSaysThatShardsRunDifferentManifests(t *testing.T) {
	says := func(owned ...ClusterNode) string {
		f := frontOf(t, naming(0), naming(1), naming(2))
		for i, n := range owned {
			n.Node = "n1"
			s := ClusterStatus{Node: "n1", Owner: "n1", Nodes: []ClusterNode{n, {Node: "n2", Revision: 9, Manifests: "of a standby"}}}
			f.shards[i].now.Store(&hosted{Server: &Server{options: Options{Cluster: knownCluster{s: s}}}})
		}
		all := f.clusterOfAll(t.Context())
		if all.Nodes[0].Manifests != "" {
			t.Errorf("a node with several shards has one hash: %+v", all.Nodes[0])
		}
		return all.Problem
	}
	a, again, b := ClusterNode{Revision: 3, Manifests: "aa"}, ClusterNode{Revision: 5, Manifests: "aa"}, ClusterNode{Revision: 3, Manifests: "bb"}
	if got := says(a, again, ClusterNode{Revision: 3}); got != "" { // an older version of Edda says no hash
		t.Errorf("the same content: %q", got)
	}
	want := "the shards run different manifests: shard 0 runs revision 3 (aa), and shard 2 runs revision 3 (bb); deploy the right ones again"
	if got := says(a, again, b); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestAPageThatIsTooLargeSaysSo: before, it was one that broke off, to be tried again for ever.
func TestAPageThatIsTooLargeSaysSo(t *testing.T) {
	for name, failed := range map[string]func(){"of this node": func() {}, "of another node": func() { panic(http.ErrAbortHandler) }} {
		large := func(w http.ResponseWriter, _ *http.Request) {
			piece := make([]byte, maxRecorded/2)
			for range 3 {
				if _, err := w.Write(piece); err != nil {
					failed() // as a proxy does
				}
			}
		}
		for target, limited := range map[string]bool{"/v1/instances?limit=1000": true, "/info": false} {
			w := callFront(frontOf(t, large), "GET", target, "")
			said := w.Body.String()
			if w.Code != http.StatusUnprocessableEntity || !strings.Contains(said, "name the shard, with --shard") || strings.Contains(said, "or ask for fewer with limit") != limited {
				t.Errorf("%s %s: %d %.200s", target, name, w.Code, said)
			}
		}
	}
}
