package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"edda"
	"edda/internal/backoff"
	"edda/replay"
	"edda/server"
)

const (
	// replayPoll is how often a waiting command asks for the progress.
	replayPoll = 200 * time.Millisecond
	// replayPatience is how long it asks on without an answer, as while another node takes over.
	replayPatience = 30 * time.Second
	// replayTry bounds one of these questions, because the node that was asked may be frozen.
	replayTry = 5 * time.Second
)

// replayOrder holds the flags of a replay.
type replayOrder struct {
	server.ReplayOrder
	fromTime string
}

// olderKey treats --key as the instance's key, its older meaning, unless a client
// certificate is named.
func (o *replayOrder) olderKey(c *client) {
	if o.Key != "" || c.who.key == "" || c.who.cert != "" || c.term.getenv(envCert) != "" {
		return
	}
	fmt.Fprintln(c.term.err, "edda: --key names one instance no more, but the key of --cert: say --instance "+printable(c.who.key))
	o.Key, c.who.key = c.who.key, ""
}

func (t *terminal) replayCommand() *cobra.Command {
	c := &client{term: t}
	var o replayOrder
	cmd := &cobra.Command{
		Use: "replay SAGA", Short: "Rebuild a saga's instances from history and the streams", Args: args(cobra.ExactArgs(1)),
		Long: `Rebuilds the instances of a saga beside the stored ones: first from their history,
in the recorded order, then from the events of the streams that history lacks. At the
end, instances that differ replace the stored ones. All sagas continue meanwhile.

Nothing is sent by default. --emit new sends work that never went out by the records;
--emit all sends everything again under its old ids.

Every generation is built with its own version of the manifest, so it comes out
unchanged. After a mistake in a manifest was corrected, --newest builds with the
newest version; try it with --dry-run first.

In a cluster with several shards each shard replays its instances; together they are
one replay. Each exchanges nothing before it has built all of its own.

edda replay list shows earlier replays. A saga called list, or ls, is replayed by:
edda replay -- list

Exit code: 0 done, and in a dry run nothing differs; 1 it failed; 2 a mistake in
the command; 3 a dry run found instances that differ.`,
		Example: `  edda replay order --dry-run --newest
  edda replay order --newest --from-time 2026-03-01T00:00:00Z --why "total was wrong"
  edda replay order --instance O1 --emit new --why "a fact was missing"`,
		RunE: func(cmd *cobra.Command, a []string) error {
			o.Saga = a[0]
			o.olderKey(c)
			if err := o.complete(); err != nil {
				return err
			}
			if err := o.reasoned(c); err != nil {
				return err
			}
			return c.replay(cmd.Context(), o.ReplayOrder)
		},
	}
	c.register(cmd)
	c.output.register(cmd)
	o.flags(cmd, c)
	cmd.AddCommand(c.replayList())
	return cmd
}

func (c *client) replayList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the replays that are remembered, newest first", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var known server.ReplayList
			raw, err := c.get(cmd.Context(), "/admin/replay", &known)
			if err != nil {
				return err
			}
			return replays().print(c.term, c.output, raw, known.Replays)
		},
	}
	c.output.register(cmd)
	return cmd
}

func replays() listing[replay.Report] {
	return listing[replay.Report]{
		id: func(r replay.Report) string { return r.ID },
		columns: []column[replay.Report]{
			{"id", func(r replay.Report) string { return r.ID }},
			{"saga", func(r replay.Report) string { return r.Saga }},
			{"key", func(r replay.Report) string { return r.Correlation }},
			{"state", func(r replay.Report) string { return r.State }},
			{"begun", func(r replay.Report) string { return ago(r.Begun) }},
			{"what came of it", func(r replay.Report) string { return brief(replayRemark(r)) }},
		},
	}
}

// replayRemark returns what an operator should notice about a replay in a list.
func replayRemark(r replay.Report) string {
	p := r.Progress
	switch {
	case r.Error != "":
		return r.Error
	case r.State == replay.StateRunning:
		return fmt.Sprintf("%s, %d of %d events", p.Phase, p.EventsDone, p.EventsTotal)
	case r.DryRun:
		return fmt.Sprintf("dry run: %d the same, %d differ", p.Same, p.Changed)
	}
	return fmt.Sprintf("%d the same, %d exchanged, %d sent", p.Same, p.Exchanged, p.Sent)
}

func (o *replayOrder) flags(cmd *cobra.Command, c *client) {
	f := cmd.Flags()
	f.Uint64Var(&o.FromSeq, "from-seq", 0, "instances that took in an event of this sequence or a later one")
	f.StringVar(&o.Stream, "stream", "", "stream of the sequence (AGGREGATE_EVENTS)")
	f.StringVar(&o.fromTime, "from-time", "", "instances that took an input in at this time or later, such as 2026-03-01T10:00:00Z")
	f.StringVar(&o.Key, "instance", "", "one instance, by its key (--key is the key of --cert)")
	f.StringVar(&o.Emit, "emit", replay.EmitNone, "work to send: none, new or all")
	offer(cmd, "emit", []string{replay.EmitNone, replay.EmitNew, replay.EmitAll})
	f.IntVar(&o.Version, "version", 0, "apply this version instead of each generation's own")
	f.BoolVar(&o.Newest, "newest", false, "apply the newest version")
	f.StringVar(&o.ID, "id", "", "ULID of the replay; a repeated call with it begins only what was not begun")
	f.BoolVar(&o.DryRun, "dry-run", false, "compare and print the differences; change nothing")
	f.StringVar(&c.why, "why", "", "the reason, for the audit (required without --dry-run)")
	f.StringVar(&c.by, "by", "", "name for the audit (default: the calling user)")
	f.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
}

// reasoned requires a reason, except for a dry run.
func (o *replayOrder) reasoned(c *client) error {
	if o.DryRun {
		return nil
	}
	return c.reasoned(edda.VerbReplay)
}

// complete parses the flags that pflag cannot parse.
func (o *replayOrder) complete() error {
	if o.fromTime != "" {
		at, err := time.Parse(time.RFC3339, o.fromTime)
		if err != nil {
			return usagef("--from-time %q: want a time such as 2026-03-01T10:00:00Z", o.fromTime)
		}
		o.FromTime = at
	}
	switch {
	case o.fromTime != "" && o.FromSeq > 0:
		return usagef("--from-seq and --from-time: give one of them")
	case o.Version > 0 && o.Newest:
		return usagef("--version and --newest: give one of them")
	case o.Emit != replay.EmitNone && o.Emit != replay.EmitNew && o.Emit != replay.EmitAll:
		return usagef("--emit %q: want none, new or all", o.Emit)
	}
	return nil
}

// replay asks for confirmation if work will be sent, with the numbers of a dry run.
func (c *client) replay(ctx context.Context, o server.ReplayOrder) error {
	if !o.DryRun && o.Emit != replay.EmitNone && !c.yes {
		if err := c.sureToEmit(ctx, o); err != nil {
			return err
		}
	}
	r, raw, err := c.runReplay(ctx, o)
	if err != nil {
		return err
	}
	return c.printReplay(r, raw)
}

// sureToEmit asks for confirmation of the work that will be sent, and says what was sent
// before.
func (c *client) sureToEmit(ctx context.Context, o server.ReplayOrder) error {
	if !isTerminal(c.term.in) {
		return usagef("--emit %s sends work, and nobody is here to be asked: look with --dry-run, then add --yes", o.Emit)
	}
	try := o
	try.DryRun, try.ID = true, "" // it is another replay
	r, _, err := c.runReplay(ctx, try)
	if err != nil {
		return err
	}
	p := r.Progress
	if o.Emit == replay.EmitNew {
		return c.sure(true, fmt.Sprintf("send %d pieces of work that never went out by the records", p.NewWork))
	}
	fmt.Fprintf(c.term.err, "%d pieces of work go out, %d of them for the second time: effects whose outcome the ledger still has are answered from it,\n"+
		"all others are CALLED AGAIN; commands, facts, messages and starts of children are published again. They keep their ids.\n", p.AllWork, p.AllWork-p.NewWork)
	return c.sure(true, fmt.Sprintf("send all work of %s again", o.Saga))
}

// runReplay starts a replay and waits for its end. The replay has an id before the call, for a repetition if no answer
// comes.
func (c *client) runReplay(ctx context.Context, o server.ReplayOrder) (replay.Report, []byte, error) {
	if o.ID == "" {
		o.ID = ulid.Make().String()
	}
	body, err := json.Marshal(o)
	if err != nil {
		return replay.Report{}, nil, fmt.Errorf("write the order: %w", err)
	}
	sent := false
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent = true }})
	var begun replay.Report
	_, err = c.callInto(traced, http.MethodPost, "/admin/replay", body, &begun)
	var refused *refusedError
	told := errors.As(err, &refused) && (refused.status < 500 || strings.Contains(refused.text, o.ID)) // what has begun
	switch {
	case err == nil:
		return c.awaitReplay(ctx, begun.ID, replayPoll, replayPatience)
	case sent && !told && !o.DryRun:
		err = fmt.Errorf("%w; whether the replay has begun is not known: repeat the command with --id %s: a store that still knows it does not begin again", err, o.ID)
	}
	return begun, nil, err
}

// awaitReplay shows the progress of a replay until it ends. It asks on without an answer for as long as patience says.
func (c *client) awaitReplay(ctx context.Context, id string, poll, patience time.Duration) (replay.Report, []byte, error) {
	shown := newReplayLine(c.term)
	defer shown.end()
	answered := time.Now()
	for {
		var list struct {
			Replays []json.RawMessage `json:"replays"`
		}
		try, cancel := context.WithTimeout(ctx, replayTry)
		_, err := c.get(try, "/admin/replay?id="+url.QueryEscape(id), &list)
		cancel()
		if err != nil && passes(err) && time.Since(answered) < patience && backoff.Wait(ctx, poll) == nil {
			continue
		}
		if err != nil {
			return replay.Report{}, nil, leftAlone(ctx, id, err)
		}
		answered = time.Now()
		var r replay.Report
		if err := json.Unmarshal(list.Replays[0], &r); err != nil {
			return r, nil, fmt.Errorf("decode the progress: %w", err)
		}
		if shown.show(r); r.State != replay.StateRunning {
			return r, list.Replays[0], nil
		}
		if backoff.Wait(ctx, poll) != nil {
			return r, nil, leftAlone(ctx, id, nil)
		}
	}
}

// passes tells whether an error may pass by itself: no answer, or one of a server that stops, starts or takes over.
func passes(err error) bool {
	var refused *refusedError
	return !errors.As(err, &refused) || refused.status == http.StatusBadGateway || refused.status == http.StatusServiceUnavailable
}

// leftAlone says that the replay continues although this command stops waiting.
func leftAlone(ctx context.Context, id string, cause error) error {
	if ctx.Err() != nil || cause == nil {
		return fmt.Errorf("the replay %s goes on without this command: GET /admin/replay?id=%s tells how far it has come", id, id)
	}
	return fmt.Errorf("%w; the replay %s had begun: unless it was a dry run it goes on, after a restart, too, and GET /admin/replay?id=%s tells how far it has come", cause, id, id)
}

// replayLine formats the progress as one line that a terminal overwrites.
type replayLine struct {
	t     *terminal
	live  bool
	wrote bool
}

func newReplayLine(t *terminal) *replayLine { return &replayLine{t: t, live: isTerminal(t.err)} }

func (l *replayLine) show(r replay.Report) {
	if l.live {
		fmt.Fprintf(l.t.err, "\r\x1b[K%s", replayProgress(r))
		l.wrote = true
	}
}

func (l *replayLine) end() {
	if l.wrote {
		fmt.Fprintln(l.t.err)
	}
}

func replayProgress(r replay.Report) string {
	p := r.Progress
	percent := 0
	if p.EventsTotal > 0 {
		percent = 100 * p.EventsDone / p.EventsTotal
	}
	phase := p.Phase
	if phase == "" {
		phase = r.State
	}
	return fmt.Sprintf("%-8s %3d %%  %d of %d events, %d of %d instances, %d differ", phase, percent, p.EventsDone, p.EventsTotal, p.KeysDone, p.KeysTotal, p.Changed)
}

func (c *client) printReplay(r replay.Report, raw []byte) error {
	switch c.output {
	case outputJSON:
		if err := indented(c.term.out, raw); err != nil {
			return err
		}
	case outputIDs:
		fmt.Fprintln(c.term.out, r.ID)
	default:
		c.printDifferences(r)
	}
	if r.State == replay.StateFailed {
		return fmt.Errorf("the replay failed: %s", r.Error)
	}
	if r.Correlation != "" && r.Progress.KeysDone == 0 {
		return fmt.Errorf("no instance %q of saga %s was built again: edda instance list --saga %s lists those there are", r.Correlation, r.Saga, r.Saga)
	}
	if r.DryRun && r.Progress.Changed > 0 {
		return &differsError{}
	}
	return nil
}

func (c *client) printDifferences(r replay.Report) {
	out, p := c.term.out, r.Progress
	key := ""
	for _, d := range p.Differences {
		if d.Key != key {
			fmt.Fprintln(out, printable(r.Saga+" "+d.Key))
			key = d.Key
		}
		fmt.Fprintf(out, "  %s\n    was %s\n    is  %s\n", printable(d.Path), shownValue(d.Was), shownValue(d.Is))
	}
	for _, w := range p.Work {
		fmt.Fprintln(out, printable(fmt.Sprintf("new work of %s: %s %s%s", w.Key, w.Kind, w.Name, map[bool]string{true: ", sent"}[w.Sent])))
	}
	if len(p.Differences) >= replay.MaxShown || len(p.Work) >= replay.MaxShown {
		fmt.Fprintf(out, "only the first %d differences and pieces of work are shown\n", replay.MaxShown)
	}
	for _, n := range p.Notes {
		fmt.Fprintln(out, printable("note: "+n))
	}
	fmt.Fprintln(out, printable(replayResult(r)))
}

func shownValue(raw json.RawMessage) string {
	if len(raw) == 0 {
		return "(nothing)"
	}
	return printable(string(raw))
}

// replayResult formats the outcome of a replay as one line.
func replayResult(r replay.Report) string {
	p := r.Progress
	line := fmt.Sprintf("%d events of %d instances: %d came out the same, %d differ", p.EventsDone, p.KeysDone, p.Same, p.Changed)
	if p.Unbuilt > 0 {
		line += fmt.Sprintf(", %d could not be built again", p.Unbuilt)
	}
	if r.DryRun {
		return line + fmt.Sprintf("; %d pieces of new work; nothing was changed", p.NewWork)
	}
	if p.Before > 0 {
		line += fmt.Sprintf(", %d had been exchanged before a restart", p.Before)
	}
	return line + fmt.Sprintf(", %d were exchanged; %d pieces of new work, %d sent", p.Exchanged, p.NewWork, p.Sent)
}
