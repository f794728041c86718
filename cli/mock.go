package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"edda"
	"edda/node"
	"edda/server"
)

func (t *terminal) mockCommand() *cobra.Command {
	c := &client{term: t}
	noun := &cobra.Command{
		Use: "mock", Short: "Say how the effects of edda dev --mock are answered", Args: noun, RunE: help,
		Long: `Say how the effects of a running edda dev --mock are answered. Without an order each
effect is answered as in the tests of the manifests.`,
		Example: "  edda mock fail ship --code out_of_stock\n  edda mock down charge --times 2    # tried again twice, then answered as before\n  edda mock ok ship",
	}
	c.register(noun)
	onlyWords(noun, "ca", "cert", "token-file")
	var times int
	var code, result string
	order := func(use, answer, short string) *cobra.Command {
		cmd := &cobra.Command{
			Use: use + " EFFECT", Short: short, Args: args(cobra.ExactArgs(1)), ValidArgsFunction: first(c.completeMocks),
			RunE: func(cmd *cobra.Command, a []string) error {
				return c.mock(cmd, a[0], server.MockAnswer{Answer: answer, Code: code, Times: times}, result)
			},
		}
		cmd.Flags().IntVar(&times, "times", 0, "only the next calls, that many; 0 means all")
		c.output.register(cmd)
		return cmd
	}
	ok, fail := order("ok", "ok", "Answer as the tests do, or with a result"), order("fail", "failed", "Fail for good")
	ok.Flags().StringVar(&result, "result", "", "the result: JSON, @FILE, or - for standard input")
	fail.Flags().StringVar(&code, "code", "", "code of the failure (mock)")
	noun.AddCommand(c.mockList(), ok, fail,
		order("timeout", "timeout", "Give no answer: whether the call was done is not known"),
		order("down", "down", "Be out of reach, so that the call is tried again"))
	return noun
}

func (c *client) mockList() *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List how the effects are answered", Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var found server.MockList
			raw, err := c.get(cmd.Context(), "/admin/mock", &found)
			if err != nil {
				return err
			}
			return mocks().print(c.term, c.output, raw, found.Mocks)
		},
	}
	c.output.register(cmd)
	return cmd
}

func (c *client) mock(cmd *cobra.Command, effect string, a server.MockAnswer, result string) error {
	text, err := c.term.text("--result", result)
	if err != nil {
		return err
	}
	if a.Result = json.RawMessage(text); text != "" && !json.Valid(a.Result) {
		return usagef("--result: want JSON, such as '{\"id\": 7}'")
	}
	order, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	var found server.MockList
	raw, err := c.callInto(cmd.Context(), http.MethodPost, "/admin/mock/"+segment(effect), order, &found)
	if err != nil {
		return err
	}
	for _, m := range found.Mocks {
		if m.Effect == effect {
			return mocks().print(c.term, c.output, raw, []server.Mock{m})
		}
	}
	return nil
}

func mocks() listing[server.Mock] {
	return listing[server.Mock]{
		id: func(m server.Mock) string { return m.Effect },
		columns: []column[server.Mock]{
			{"effect", func(m server.Mock) string { return m.Effect }},
			{"answer", func(m server.Mock) string { return strings.TrimSpace(m.Answer + " " + m.Code) }},
			{"times", func(m server.Mock) string {
				if m.Times == 0 {
					return "all"
				}
				return strconv.Itoa(m.Times)
			}},
			{"result", func(m server.Mock) string {
				if len(m.Result) == 0 {
					return ""
				}
				return compact(m.Result)
			}},
			{"from", func(m server.Mock) string { return m.From }},
		},
	}
}

// completeMocks completes the effects of a process that mocks them.
func (c *client) completeMocks(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var found server.MockList
	if _, err := c.get(cmd.Context(), "/admin/mock", &found); err != nil {
		return nil, noFiles
	}
	var out []string
	for _, m := range found.Mocks {
		if strings.HasPrefix(m.Effect, typed) {
			out = append(out, cobra.CompletionWithDesc(m.Effect, m.Answer))
		}
	}
	return out, noFiles
}

// hint prints what happened in edda dev --mock, and the line that brings an instance on.
func (t *terminal) hint(s node.Settings, r node.Running, h node.Hint) {
	if c := h.Mocked; c != nil {
		line := "mock: " + c.Effect + ofInstance(c.Key) + " answered " + c.Answer
		if c.Answer == "ok" {
			line += " " + compact(c.Result)
		}
		fmt.Fprintln(t.out, printable(line+" ("+c.From+")"))
		return
	}
	in := h.Instance
	for _, command := range h.Commands {
		fmt.Fprintln(t.out, printable("mock: command "+command+ofInstance(in.Key)+" reaches no service here"))
	}
	to, at := elsewhere(s, r)
	name := in.Key.Saga + " " + in.Key.Correlation
	describe := fmt.Sprintf("edda instance describe %s %s%s", in.Key.Saga, quote(in.Key.Correlation), at)
	switch {
	case in.Status == edda.StatusDone:
		fmt.Fprintln(t.out, printable(name+" is done: "+compact(in.Result))+"\n  "+describe)
	case in.Status.Finished():
		fmt.Fprintln(t.out, printable(name+" is "+string(in.Status)+": "+in.Reason)+"\n  "+describe)
	case in.Status == edda.StatusStuck:
		fmt.Fprintln(t.out, printable(name+" is stuck: an undo failed, and waits for you")+"\n  "+describe)
	case h.Next.Kind != "":
		fmt.Fprintln(t.out, printable(fmt.Sprintf("%s waits; go on as the test %q does:", name, h.Test))+"\n  "+inputLine(h.Next, to, at))
	case len(h.Waits) > 0:
		fmt.Fprintln(t.out, printable(name+" waits for "+strings.Join(h.Waits, ", "))+"\n  "+describe)
	}
}

func ofInstance(k edda.Key) string {
	if k.Saga == "" {
		return ""
	}
	return " of " + k.Saga + " " + k.Correlation
}

// inputLine is the command that gives an input.
func inputLine(ev edda.Event, to, at string) string {
	line := ""
	switch ev.Kind {
	case edda.KindAnswer:
		line = fmt.Sprintf("edda instance answer %s %s %s %s", ev.Key.Saga, quote(ev.Key.Correlation), quote(ev.Step), quote(ev.Type))
	case edda.KindSignal:
		line = fmt.Sprintf("edda instance signal %s %s %s", ev.Key.Saga, quote(ev.Key.Correlation), quote(ev.Type))
	default:
		return sendLine(ev) + to
	}
	if len(ev.Payload) > 0 {
		line += " --data " + quote(string(ev.Payload))
	}
	return line + at
}

// sendLine is the command that publishes an event.
func sendLine(ev edda.Event) string {
	line := fmt.Sprintf("edda send %s --id %s --data %s", ev.Name(), quote(ev.AggregateID), quote(string(ev.Payload)))
	if ev.Version > 1 && ev.FullType == "" {
		line += " --version " + strconv.Itoa(ev.Version)
	}
	if ev.Correlation != "" {
		line += " --correlation " + quote(ev.Correlation)
	}
	return line
}
