package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"edda/hero"
)

func (t *terminal) flowDelete(h *heroClient) *cobra.Command {
	var jobs bool
	c := &cobra.Command{
		Use: "delete CONTEXT FLOW", Aliases: []string{"rm"}, Short: "Remove a flow that does not run; its jobs stay",
		Long: `Remove a flow that does not run. Its jobs stay, with their results; --jobs removes
them too. The id of a flow that ran cannot be used again.`,
		Args: args(cobra.ExactArgs(2)), ValidArgsFunction: t.completeFlows(h),
		RunE: func(cmd *cobra.Command, words []string) error {
			var f hero.Flow
			if err := t.callFlow(cmd.Context(), h, words, "flow.load", "", &f); err != nil {
				return err
			}
			client, err := h.open(t)
			if err != nil {
				return err
			}
			if err := client.Call(cmd.Context(), "flow.delete", flowID{ContextID: f.ContextID, ID: f.ID}, nil); err != nil {
				return h.failed(err)
			}
			if !jobs {
				fmt.Fprintf(t.out, "flow %s: deleted; its %s\n", titled(f.ID, f.Name), many(uint64(len(f.Jobs)), "job stays", "jobs stay"))
				return nil
			}
			for i, id := range f.Jobs {
				params := ownedID(f.ContextID, f.CallerID, id)
				if err := client.Call(cmd.Context(), "job.delete", params, nil); err != nil && missing(err) == "" {
					t.complain(fmt.Errorf("flow %d is deleted, and these jobs are not; delete them with: %s", f.ID, leftJobs(f.ContextID, f.CallerID, f.Jobs[i:])))
					return h.failed(err)
				}
			}
			fmt.Fprintf(t.out, "flow %s: deleted, with %s\n", titled(f.ID, f.Name), many(uint64(len(f.Jobs)), "job", "jobs"))
			return nil
		},
	}
	c.Flags().BoolVar(&jobs, "jobs", false, "remove its jobs, too")
	return c
}

func flowStatuses() []string {
	return []string{string(hero.FlowDispatched), string(hero.FlowStarted), string(hero.FlowError), string(hero.FlowFinished)}
}

func (t *terminal) flowList(h *heroClient) *cobra.Command {
	var status string
	var limit int
	var offset uint32
	var output outputFlag
	c := &cobra.Command{
		Use: "list CONTEXT", Aliases: []string{"ls"}, Short: "List the flows of a context", Args: args(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, words []string) error {
			contextID, err := strconv.ParseUint(words[0], 10, 32)
			if err != nil {
				return usagef("CONTEXT %q: want the number of a context", words[0])
			}
			if status != "" && !slices.Contains(flowStatuses(), status) {
				return usagef("--status %s: want one of %s", status, strings.Join(flowStatuses(), ", "))
			}
			if err := page(limit); err != nil {
				return err
			}
			client, err := h.open(t)
			if err != nil {
				return err
			}
			params := map[string]any{"context_id": contextID, "limit": limit + 1, "offset": offset}
			if status != "" {
				params["status"] = status
			}
			flows := []hero.Flow{}
			if err := client.Call(cmd.Context(), "flow.list", params, &flows); err != nil {
				return h.failed(err)
			}
			more := len(flows) > limit
			if err := flowList.print(t, output, nil, flows[:min(limit, len(flows))]); err != nil {
				return err
			}
			if more {
				fmt.Fprintf(t.err, "more: add --offset %d\n", uint64(offset)+uint64(limit))
			}
			return nil
		},
	}
	c.Flags().StringVar(&status, "status", "", "only dispatched, started, error or finished")
	c.Flags().IntVar(&limit, "limit", 100, "maximum number, up to 1000")
	c.Flags().Uint32Var(&offset, "offset", 0, "skip this many of the lowest ids")
	offer(c, "status", flowStatuses())
	output.register(c)
	return c
}

var flowList = listing[hero.Flow]{
	id: func(f hero.Flow) string { return strconv.FormatUint(uint64(f.ID), 10) },
	columns: []column[hero.Flow]{
		{"flow", func(f hero.Flow) string { return strconv.FormatUint(uint64(f.ID), 10) }},
		{"name", func(f hero.Flow) string { return brief(f.Name) }},
		{"status", func(f hero.Flow) string { return string(f.Status) }},
		{"jobs", func(f hero.Flow) string { return strconv.Itoa(len(f.Jobs)) }},
		{"updated", func(f hero.Flow) string {
			if f.UpdatedAt == 0 {
				return ""
			}
			return ago(time.Unix(int64(f.UpdatedAt), 0))
		}},
		{"remark", func(f hero.Flow) string { return brief(f.Unreadable) }},
	},
}

// completeFlows completes the flow of the context that is typed, where a coordinator
// answers.
func (t *terminal) completeFlows(h *heroClient) cobra.CompletionFunc {
	return func(cmd *cobra.Command, words []string, typed string) ([]string, cobra.ShellCompDirective) {
		client, err := h.open(t)
		if len(words) != 1 || err != nil {
			return nil, noFiles
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		var flows []hero.Flow
		contextID, err := strconv.ParseUint(words[0], 10, 32)
		if err != nil || client.Call(ctx, "flow.list", map[string]any{"context_id": contextID}, &flows) != nil {
			return nil, noFiles
		}
		var out []string
		for _, f := range slices.Backward(flows) {
			if id := strconv.FormatUint(uint64(f.ID), 10); strings.HasPrefix(id, typed) && len(out) < maxCompletions {
				out = append(out, cobra.CompletionWithDesc(id, strings.TrimSpace(printable(f.Name+" "+string(f.Status)))))
			}
		}
		return out, noFiles
	}
}
