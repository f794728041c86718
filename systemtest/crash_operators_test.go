//go:build !race

package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"edda"
	"edda/replay"
	"edda/server"
)

// acts are what operators do to a process under load, and the points between the
// steps of each. A point that is not named here is one of the line, which events
// alone pass. Where an act lingers, events come in between two of its steps.
var acts = []act{
	{(*operators).compact, "compactCopied=sleep(100)", []string{"compactCopied", "compactCaughtUp", "compactSynced", "compactRenamed", "compactTaken"}},
	{(*operators).collect, "", []string{"retentionClocked", "retentionFound", "retentionRemoved"}},
	{(*operators).replay, "replayBuilt=sleep(10)", []string{"replayBegun", "replayRound", "replayBuilt", "engineExchanged", "replayExchanged", "replayDone", "replayRecorded"}},
	{(*operators).mend, "", []string{"letterActed", "letterTaken"}},
	{(*operators).resend, "", []string{"letterResent", "letterBeforeMark", "letterMarked"}},
	{(*operators).backup, "", []string{"backupAudited"}},
}

type act struct {
	do      func(*operators, context.Context) error
	lingers string
	points  []string
}

// env has the act linger, unless that is where it is to be killed.
func (a *act) env(point string) []string {
	if a == nil || a.lingers == "" || point != "" && strings.HasPrefix(a.lingers, point+"=") {
		return nil
	}
	return []string{a.lingers}
}

// actAt is the act that passes a point; nil where none has to.
func actAt(point string) *act {
	i := slices.IndexFunc(acts, func(a act) bool { return slices.Contains(a.points, point) })
	if i < 0 {
		return nil
	}
	return &acts[i]
}

// passedOften are points of an act that one act passes many times.
var passedOften = []string{"replayBuilt", "engineExchanged", "replayExchanged"}

const (
	// actEvery is how long an operator waits before he does again what he could
	// not do yet.
	actEvery = 20 * time.Millisecond
	// replayed is the saga whose instances are built again and again, with one
	// version of it and with the other.
	replayed     = "tally"
	replayedWith = 2 // versions; instances begin on the last
)

// operators act on the process, and know what they did: a person would.
type operators struct {
	url  string
	http http.Client
	by   string
	// shards are those of the cluster, and no header names one of a single store.
	shards int

	mu      sync.Mutex // guards all below
	resent  map[string]string
	turn    int
	calm    bool           // nothing is sent again: it lies in the stream already
	done    map[string]int // acts that were answered
	refused map[string]int
	first   string // what was refused first
}

func newOperators(addr string) *operators {
	return &operators{url: "http://" + addr, http: http.Client{Timeout: 2 * soon}, by: "the torture", resent: map[string]string{}, done: map[string]int{}, refused: map[string]int{}}
}

// during lets an act go on until it is over or the process is dead. The returned
// function ends it.
func (o *operators) during(a *act) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var under sync.WaitGroup
	under.Go(func() {
		for ctx.Err() == nil && a.do(o, ctx) != nil {
			select {
			case <-time.After(actEvery):
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		under.Wait()
	}
}

// call does one act by HTTP. What the server refuses is an error that names its
// status: a conflict may be right, since a killed process may have done it.
func (o *operators) call(ctx context.Context, method, path string, body any, headers ...string) ([]byte, error) {
	var text []byte
	if body != nil {
		text = encoded(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, o.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "x-tenant-id": "default", "x-edda-by": o.by, "x-edda-why": "torture"} {
		req.Header.Set(name, value)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		req.Header.Set(name, value)
	}
	resp, err := o.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, o.refuse(resp.Status, path+": "+string(out))
	}
	return out, nil
}

func (o *operators) refuse(what, why string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refused[what]++
	if o.first == "" {
		o.first = what + ": " + why
	}
	return fmt.Errorf("%s: %s", what, why)
}

func (o *operators) did(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done[what]++
}

// upkeep is an act on each store, whose answer comes in lines; the last one is its result.
func (o *operators) upkeep(ctx context.Context, what string) error {
	if o.shards < 2 {
		return o.upkeepOf(ctx, what)
	}
	for i := range o.shards {
		if err := o.upkeepOf(ctx, what, fmt.Sprintf("%s: %d", server.ShardHeader, i)); err != nil {
			return err
		}
	}
	return nil
}

func (o *operators) upkeepOf(ctx context.Context, what string, headers ...string) error {
	out, err := o.call(ctx, http.MethodPost, "/admin/"+what, nil, headers...)
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var last server.Line
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Result == nil {
		return o.refuse("no "+what, lines[len(lines)-1])
	}
	o.did(what)
	return nil
}

func (o *operators) compact(ctx context.Context) error { return o.upkeep(ctx, "compact") }
func (o *operators) collect(ctx context.Context) error {
	if err := o.upkeep(ctx, "gc"); err != nil {
		return err
	}
	return o.allGone(ctx)
}

// allGone is an error while an instance is kept that is to go: the act is done
// again then.
func (o *operators) allGone(ctx context.Context) error {
	var list server.InstanceList
	if err := o.get(ctx, "/v1/instances?limit=1&saga=visit", &list); err != nil || len(list.Instances) == 0 {
		return err
	}
	return errors.New("a visit is kept")
}

func (o *operators) backup(ctx context.Context) error {
	_, err := o.call(ctx, http.MethodPost, "/admin/backup", nil)
	if err == nil {
		o.did("backup")
	}
	return err
}

func (o *operators) get(ctx context.Context, path string, into any) error {
	out, err := o.call(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

// replay has the instances built again with the one version, the next time with
// the other, once there is none that goes on from the life before.
func (o *operators) replay(ctx context.Context) error {
	switch running, err := o.running(ctx); {
	case err != nil:
		return err
	case running:
		return errors.New("another replay goes on")
	}
	o.mu.Lock()
	version := 1 + o.turn%replayedWith
	o.turn++
	o.mu.Unlock()
	_, err := o.begin(ctx, server.ReplayOrder{Saga: replayed, Version: version})
	if err == nil {
		o.did("replay")
	}
	return err
}

func (o *operators) running(ctx context.Context) (bool, error) {
	list, err := o.replays(ctx, "")
	return slices.ContainsFunc(list, func(r replay.Report) bool { return r.State == replay.StateRunning }), err
}

func (o *operators) replays(ctx context.Context, id string) ([]replay.Report, error) {
	var list server.ReplayList
	err := o.get(ctx, "/admin/replay?id="+id, &list)
	return list.Replays, err
}

func (o *operators) begin(ctx context.Context, order server.ReplayOrder) (r replay.Report, err error) {
	out, err := o.call(ctx, http.MethodPost, "/admin/replay", order)
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	return r, err
}

// letters are the dead letters of one reason.
func (o *operators) letters(ctx context.Context, reason string) (all []edda.DeadLetter, err error) {
	for after := ""; ; {
		var page server.DeadLetterList
		if err := o.get(ctx, "/v1/deadletters?limit=1000&reason="+reason+"&after="+after, &page); err != nil {
			return nil, err
		}
		all = append(all, page.DeadLetters...)
		if after = page.Next; after == "" {
			return all, nil
		}
	}
}

// errNone says that there is nothing to act on yet.
var errNone = errors.New("there is no such letter yet")

// mend redrives what holds a key, with data that can be weighed.
func (o *operators) mend(ctx context.Context) error {
	list, err := o.letters(ctx, edda.DeadPoison)
	if err != nil {
		return err
	}
	found := errNone
	for _, d := range list {
		if order := d.Key.Correlation; strings.HasPrefix(order, "mended-") {
			found = o.onLetter(ctx, d, edda.VerbRedrive, fmt.Sprintf(`{"order_id":%q,"weight":4}`, order))
		}
	}
	return found
}

// resend sends what could not be read once more, as it was meant. Where the
// producer had sent it twice the second letter is dropped. In a calm run the
// message lies in the stream already.
func (o *operators) resend(ctx context.Context) error {
	list, err := o.letters(ctx, edda.DeadUndecodable)
	if err != nil {
		return err
	}
	found := errNone
	for _, d := range list {
		order, verb, data := d.Event.AggregateID, edda.VerbDrop, ""
		if o.mine(order, d.ID) {
			verb, data = edda.VerbRedrive, fmt.Sprintf(`{"event_type":"PaymentReceived","payload":{"order_id":%q,"amount":1}}`, order)
		}
		found = o.onLetter(ctx, d, verb, data)
	}
	return found
}

// mine tells whether this is the letter by which an order is mended.
func (o *operators) mine(order, letter string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calm {
		return false
	}
	if o.resent[order] == "" {
		o.resent[order] = letter
	}
	return o.resent[order] == letter
}

func (o *operators) onLetter(ctx context.Context, d edda.DeadLetter, verb, data string) error {
	body := map[string]any{"why": "torture"}
	if data != "" {
		body["data"] = json.RawMessage(data)
	}
	_, err := o.call(ctx, http.MethodPost, "/v1/deadletters/"+d.ID+"/"+verb, body)
	if err == nil {
		o.did(verb)
	}
	return err
}

// ahead does what is left to do for every order to end, and is an error as long
// as there was anything.
func (o *operators) ahead(ctx context.Context, operated bool) error {
	all := []func(context.Context) error{o.mend, o.resend}
	if operated {
		all = append(all, func(ctx context.Context) error {
			if o.allGone(ctx) == nil {
				return errNone
			}
			return o.collect(ctx)
		})
	}
	var left error
	for _, do := range all {
		if err := do(ctx); !errors.Is(err, errNone) {
			left = errors.Join(left, fmt.Errorf("not at rest: %w", err))
		}
	}
	return left
}

// anyAct is one of them, by chance.
func anyAct(rnd *rand.Rand) *act { return &acts[rnd.IntN(len(acts))] }
