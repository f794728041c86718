package demo

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// table prints the outcomes with their latencies, and what the shop was asked.
func (r *run) table(ctx context.Context, all []ended) {
	groups := r.latencies(all)
	t := table.NewWriter()
	t.SetOutputMirror(r.Out)
	t.AppendHeader(table.Row{"saga", "ended", "because", "count", "p50", "p99"})
	for _, e := range slices.SortedFunc(maps.Keys(groups), byName) {
		t.AppendRow(table.Row{e.Saga, e.Status, e.Reason, len(groups[e]), quantile(groups[e], 50), quantile(groups[e], 99)})
	}
	t.Render()
	r.callTable(ctx)
}

// latencies are the times from event to end, by outcome.
func (r *run) latencies(all []ended) map[ended][]time.Duration {
	took, _, _ := r.ends.Took()
	groups := map[ended][]time.Duration{}
	for _, e := range all {
		outcome := ended{Saga: e.Saga, Status: e.Status, Reason: e.Reason}
		groups[outcome] = append(groups[outcome], took[e.Key])
	}
	return groups
}

func byName(a, b ended) int {
	return cmp.Or(cmp.Compare(a.Saga, b.Saga), cmp.Compare(a.Status, b.Status), cmp.Compare(a.Reason, b.Reason))
}

func (r *run) callTable(ctx context.Context) {
	endpoints, repeats := r.shop.Calls()
	calls, commands := 0, 0
	for _, d := range endpoints {
		if strings.HasPrefix(d.Path, "command ") {
			commands += d.Calls
			continue
		}
		calls += d.Calls
	}
	sent := r.Orders + r.Trips
	r.say("\n%d sagas in %.1f s: %.0f sagas/s; %d effect calls and %d commands over HTTP, %d of them repeats",
		sent, r.took.Seconds(), float64(sent)/r.took.Seconds(), calls, commands, repeats)
	if n, err := r.eventsHandled(ctx); err == nil {
		r.say("%d events handled: %.0f events/s", n, float64(n)/r.took.Seconds())
	}
}

// eventsHandled counts the messages that the streams hold for the sagas.
func (r *run) eventsHandled(ctx context.Context) (uint64, error) {
	var n uint64
	for _, name := range []string{"AGGREGATE_EVENTS", "WORKFLOW_EVENTS"} {
		s, err := r.client.JS.Stream(ctx, name)
		if err != nil {
			return 0, err
		}
		n += s.CachedInfo().State.Msgs
	}
	return n, nil
}

func quantile(d []time.Duration, percent int) string {
	slices.Sort(d)
	return fmt.Sprint(d[(len(d)-1)*percent/100].Round(time.Millisecond))
}
