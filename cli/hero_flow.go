package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"edda/hero"
	"edda/hero/flow"
)

func (t *terminal) heroFlowCommand() *cobra.Command {
	var h heroClient
	noun := &cobra.Command{Use: "flow", Short: "Create, start and show flows of jobs", Args: noun, RunE: help}
	h.register(noun)
	onlyWords(noun, "token-file")
	noun.AddCommand(
		t.flowCreate(&h), t.flowList(&h),
		t.flowVerb(&h, "start", "Start a flow, or restart one in error where it failed", "flow.start", map[string]string{"true": "started", "false": "it runs already"}),
		t.flowVerb(&h, "cancel", "End a flow now; running jobs are asked to stop", "flow.cancel", map[string]string{"true": "cancelled", "false": "there was nothing to cancel"}),
		t.flowMet(&h), t.flowShow(&h), t.flowDelete(&h))
	return noun
}

// flowID names a flow in a call.
type flowID struct {
	ContextID uint32 `json:"context_id"`
	ID        uint32 `json:"id"`
	Name      string `json:"name,omitempty"`
}

func readFlowID(words []string) (flowID, error) {
	context, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil {
		return flowID{}, usagef("CONTEXT %q: want the number of a context", words[0])
	}
	id, err := strconv.ParseUint(words[1], 10, 32)
	if err != nil {
		return flowID{}, usagef("FLOW %q: want the number of a flow", words[1])
	}
	return flowID{ContextID: uint32(context), ID: uint32(id)}, nil
}

// flowVerb is a method that answers true or false.
func (t *terminal) flowVerb(h *heroClient, verb, short, method string, says map[string]string) *cobra.Command {
	return &cobra.Command{
		Use: verb + " CONTEXT FLOW", Short: short, Args: args(cobra.ExactArgs(2)), ValidArgsFunction: t.completeFlows(h),
		RunE: func(cmd *cobra.Command, words []string) error {
			var done bool
			if err := t.callFlow(cmd.Context(), h, words, method, "", &done); err != nil {
				return err
			}
			fmt.Fprintf(t.out, "flow %s: %s\n", words[1], says[strconv.FormatBool(done)])
			return nil
		},
	}
}

func (t *terminal) flowMet(h *heroClient) *cobra.Command {
	return &cobra.Command{
		Use: "met CONTEXT FLOW PREREQUISITE", Short: "Mark a prerequisite of a flow as met", Args: args(cobra.ExactArgs(3)), ValidArgsFunction: t.completeFlows(h),
		RunE: func(cmd *cobra.Command, words []string) error {
			var ready []uint32
			if err := t.callFlow(cmd.Context(), h, words, "flow.prerequisite_met", words[2], &ready); err != nil {
				return err
			}
			fmt.Fprintf(t.out, "flow %s: ready now: %s\n", words[1], orNone(ready))
			return nil
		},
	}
}

func orNone(ids []uint32) string {
	if len(ids) == 0 {
		return "no job"
	}
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ids)), ", "), "[]")
}

func (t *terminal) callFlow(ctx context.Context, h *heroClient, words []string, method, name string, result any) error {
	id, err := readFlowID(words)
	if err != nil {
		return err
	}
	client, err := h.open(t)
	if err != nil {
		return err
	}
	id.Name = name
	if err := client.Call(ctx, method, id, result); err != nil {
		return h.failed(err)
	}
	return nil
}

func (t *terminal) flowShow(h *heroClient) *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use: "show CONTEXT FLOW", Short: "Draw a flow's graph and the states of its jobs",
		Long: `Draw a flow's graph, a line for each level, and the states of its jobs:

  · waits   ○ about to be sent   ▷ sent   ▶ runs   ✔ completed   ✘ failed   ⊘ cancelled

←1,2 are the dependencies of a job, ?name is a prerequisite it waits for, #2 its
second attempt. With --watch the exit code is 1 if the flow ends in error. If the
coordinator stops answering, as in a restart, it is asked again for five minutes.`,
		Example: "  edda hero flow show 7 33\n  edda hero flow show 7 33 --watch",
		Args:    args(cobra.ExactArgs(2)), ValidArgsFunction: t.completeFlows(h),
		RunE: func(cmd *cobra.Command, words []string) error {
			id, err := readFlowID(words)
			if err != nil {
				return err
			}
			client, err := h.open(t)
			if err != nil {
				return err
			}
			w := flowWatch{term: t, client: client, id: id, patience: watchPatience, canvas: canvas{out: t.out, terminal: isTerminal(t.out)}}
			show := w.once
			if watch {
				show = w.follow
			}
			switch err := show(cmd.Context()); {
			case err != nil:
				return h.failed(err)
			case watch && w.status == hero.FlowError:
				return &silentError{} // the drawing says why
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&watch, "watch", "w", false, "redraw it at every change, until it has ended")
	return c
}

// canvas shows pictures that follow each other.
type canvas struct {
	out      io.Writer
	terminal bool
	last     string
}

// The terminal's words: go up so many lines and clear what is below; lines that
// are too long are cut, or go on in the next.
const (
	upAndClear = "\x1b[%dA\x1b[J"
	cutLines   = "\x1b[?7l"
	wrapLines  = "\x1b[?7h"
)

// draw draws a picture that is another than the last: in a terminal over it, where
// only the final one may take more lines than it has.
func (s *canvas) draw(picture string, final bool) {
	if picture == s.last {
		return
	}
	if s.terminal && s.last != "" {
		fmt.Fprintf(s.out, upAndClear, strings.Count(s.last, "\n"))
	}
	s.last = picture
	if s.terminal && !final {
		picture = cutLines + picture + wrapLines
	}
	fmt.Fprint(s.out, picture)
}

// nodeMark is how a node's status is drawn.
type nodeMark struct{ sign, color string }

func marks() map[hero.NodeStatus]nodeMark {
	return map[hero.NodeStatus]nodeMark{
		hero.NodePending: {"·", "2"}, hero.NodeReady: {"○", "33"}, hero.NodeDispatched: {"▷", "36"}, hero.NodeRunning: {"▶", "36;1"},
		hero.NodeCompleted: {"✔", "32"}, hero.NodeFailed: {"✘", "31;1"}, hero.NodeCancelled: {"⊘", "2"},
	}
}

// nodeNames are what people call jobs.
type nodeNames map[uint32]string

// namesIn are those that a flow says.
func namesIn(f hero.Flow) nodeNames {
	out := nodeNames{}
	for _, n := range f.Nodes {
		out[n.ID] = printable(n.Name)
	}
	return out
}

// of is the name of a job, else its id.
func (n nodeNames) of(id uint32) string {
	return cmp.Or(n[id], strconv.FormatUint(uint64(id), 10))
}

// titled adds a flow's name to its id.
func titled(id uint32, name string) string {
	if name == "" {
		return strconv.FormatUint(uint64(id), 10)
	}
	return fmt.Sprintf("%d (%s)", id, printable(name))
}

// drawFlow draws a graph by its levels: each job with what it waits for.
func drawFlow(g flow.Graph, f hero.Flow, color bool) string {
	var b strings.Builder
	names := namesIn(f)
	fmt.Fprintf(&b, "flow %s of context %d: %s, %d of %d jobs completed\n", titled(g.FlowID, f.Name), g.ContextID, f.Status, len(g.Completed), len(g.Nodes))
	for level, ids := range g.Levels {
		fmt.Fprintf(&b, "%3d ", level)
		for _, id := range ids {
			fmt.Fprint(&b, "  ")
			drawNode(&b, g.Nodes[strconv.FormatUint(uint64(id), 10)], names, color)
		}
		fmt.Fprintln(&b)
	}
	drawErrors(&b, g, names)
	return b.String()
}

func drawNode(w io.Writer, n flow.GraphNode, names nodeNames, color bool) {
	m := cmp.Or(marks()[n.NodeStatus], nodeMark{"?", "0"})
	text := m.sign + " " + names.of(n.ID)
	if color {
		text = "\x1b[" + m.color + "m" + text + "\x1b[0m"
	}
	fmt.Fprint(w, text)
	if n.Attempt > 1 {
		fmt.Fprintf(w, " #%d", n.Attempt)
	}
	if len(n.Depends) > 0 {
		var words []string
		for _, id := range n.Depends {
			words = append(words, names.of(id))
		}
		fmt.Fprintf(w, " ←%s", strings.Join(words, ","))
	}
	if len(n.Prerequisites) > 0 && n.NodeStatus == hero.NodePending {
		fmt.Fprintf(w, " ?%s", strings.Join(n.Prerequisites, ","))
	}
}

// drawErrors tells why jobs failed, below the graph.
func drawErrors(w io.Writer, g flow.Graph, names nodeNames) {
	var failed []flow.GraphNode
	for _, n := range g.Nodes {
		if n.Error != "" {
			failed = append(failed, n)
		}
	}
	slices.SortFunc(failed, func(a, b flow.GraphNode) int { return cmp.Compare(a.ID, b.ID) })
	for _, n := range failed {
		fmt.Fprintf(w, "    %s: attempt %d: %s\n", titled(n.ID, names[n.ID]), failedAttempt(n), strings.ReplaceAll(n.Error, "\n", " "))
	}
}

// failedAttempt is the one that the node's error is of: one before the last,
// while that is under way.
func failedAttempt(n flow.GraphNode) uint32 {
	if n.Attempt > 1 && (n.NodeStatus == hero.NodeDispatched || n.NodeStatus == hero.NodeRunning) {
		return n.Attempt - 1
	}
	return n.Attempt
}
