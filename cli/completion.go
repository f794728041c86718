package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"edda/access"
	"edda/internal/files"
	"edda/server"
)

const (
	// completeWithin bounds a completion that asks the server.
	completeWithin = 3 * time.Second
	noFiles        = cobra.ShellCompDirectiveNoFileComp
)

// onlyWords disables file completion for a command and its subcommands, except for these
// flags.
func onlyWords(cmd *cobra.Command, files ...string) {
	cmd.CompletionOptions.SetDefaultShellCompDirective(noFiles)
	for _, flag := range files {
		offerBy(cmd, flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		})
	}
}

// offerBy completes a flag of the command with a function.
func offerBy(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err) // programming error: the flag does not exist
	}
}

// first completes only the first argument.
func first(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, a []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(a) > 0 {
			return nil, noFiles
		}
		return complete(cmd, a, typed)
	}
}

// completeSagas completes the sagas that the server runs. It offers none if the server
// does not respond.
func (c *client) completeSagas(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	var info server.Info
	if _, err := c.get(ctx, "/info", &info); err != nil {
		return nil, noFiles
	}
	var out []string
	for _, s := range info.Sagas {
		if strings.HasPrefix(s.Saga, typed) && !slices.Contains(out, s.Saga) {
			out = append(out, s.Saga)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), maxCompletions)], noFiles
}

// completeDeadLetters completes the ids of the oldest dead letters.
func (c *client) completeDeadLetters(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	_, list, err := c.deadLetterPage(ctx, deadLetterFilter{}, paging{limit: maxCompletions})
	if err != nil {
		return nil, noFiles
	}
	var out []string
	for _, d := range list.DeadLetters {
		if strings.HasPrefix(d.ID, typed) {
			out = append(out, cobra.CompletionWithDesc(d.ID, printable(strings.TrimSpace(d.Reason+" "+inputName(d.Event)))))
		}
	}
	return out, noFiles
}

// completeNames completes the names in the file of tokens.
func (b *tokenBook) completeNames(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	text, err := files.Read(b.path(), files.Most)
	if err != nil {
		return nil, noFiles
	}
	book, err := access.Parse(text)
	if err != nil {
		return nil, noFiles
	}
	var out []string
	for _, e := range book.Entries() {
		if strings.HasPrefix(e.Name, typed) {
			out = append(out, cobra.CompletionWithDesc(e.Name, string(e.Role)))
		}
	}
	return out, noFiles
}

// completeReplay completes the saga of edda replay.
func (t *terminal) completeReplay(replay *cobra.Command) *cobra.Command {
	onlyWords(replay, "ca", "cert", "token-file")
	replay.ValidArgsFunction = first(func(cmd *cobra.Command, a []string, typed string) ([]string, cobra.ShellCompDirective) {
		return t.clientOf(cmd).completeSagas(cmd, a, typed)
	})
	return replay
}

// clientOf makes a client with the flags given to a command.
func (t *terminal) clientOf(cmd *cobra.Command) *client {
	c, own := &client{term: t}, &cobra.Command{}
	c.register(own)
	own.PersistentFlags().VisitAll(func(f *pflag.Flag) {
		if given := cmd.PersistentFlags().Lookup(f.Name); given != nil && given.Changed {
			_ = f.Value.Set(given.Value.String()) // the command has parsed it already
		}
	})
	return c
}
