package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"edda/internal/files"
	"edda/manifests"
)

// standardInput as a path means standard input and standard output.
const standardInput = "-"

// formatting holds the flags of edda fmt.
type formatting struct{ check, diff, json bool }

// formatResult is a file as -o json prints it.
type formatResult struct {
	File     string        `json:"file"`
	Changed  bool          `json:"changed"`
	Problems []lintProblem `json:"problems"`
}

func (t *terminal) fmtCommand() *cobra.Command {
	var f formatting
	output := lintText
	c := &cobra.Command{
		Use: "fmt [PATH...]", Short: "Format manifests in the one style; files, or folders of *.yaml",
		Long: `Format manifests in their files, and print the names of those that changed. There is
one style, and nothing to set. Only blanks and line ends change: comments, quotes, the
order of keys and the meaning stay. A file that is not YAML is left alone and reported,
and the others are formatted.

Of a folder it takes the files that hold a saga or an effect. Without a path it takes
the manifests that edda dev takes. With - it formats standard input to standard output,
as editors want it.

A version that ran may be formatted: it is bound to its YAML, and not to its layout.`,
		Example: `  edda fmt
  edda fmt --check manifests    # in CI
  edda fmt -d manifests/order.yaml`,
		RunE: func(_ *cobra.Command, paths []string) error {
			switch {
			case output != lintText && output != lintJSON:
				return usagef("--output %s: want one of %s, %s", output, lintText, lintJSON)
			case slices.Contains(paths, standardInput) && len(paths) > 1:
				return usagef("- stands alone: standard input is formatted to standard output")
			case output == lintJSON && (f.diff || slices.Contains(paths, standardInput)):
				return usagef("-o json lists files: leave out --diff and -")
			}
			f.json = output == lintJSON
			return t.format(paths, f)
		},
	}
	c.Flags().BoolVar(&f.check, "check", false, "change nothing; list what is not formatted; exit code 1 if there is any")
	c.Flags().BoolVarP(&f.diff, "diff", "d", false, "change nothing; print the changes as a unified diff")
	c.Flags().StringVarP(&output, "output", "o", lintText, "text or json")
	offer(c, "output", []string{lintText, lintJSON})
	return c
}

// format formats files, or shows how. It goes on after a file that it cannot read, format or write.
func (t *terminal) format(paths []string, f formatting) error {
	names, err := t.formattable(paths)
	if err != nil {
		return err
	}
	var (
		results []formatResult
		all     manifests.Problems
		failed  bool
	)
	for _, name := range names {
		source, err := t.formatSource(name)
		if err != nil {
			t.complain(fmt.Errorf("format %s: %w", name, err))
			failed = true
			continue
		}
		text, problems := manifests.Format(name, source)
		changed := len(problems) == 0 && !bytes.Equal(source, text)
		results = append(results, formatResult{name, changed, lintProblems(problems)})
		all = append(all, problems...)
		failed = failed || len(problems) > 0 || f.check && changed
		switch {
		case len(problems) > 0:
		case f.diff:
			_, err = t.out.Write(diff.Diff(name, source, name, text))
		case name == standardInput && !f.check:
			_, err = t.out.Write(text)
		case changed && !f.check:
			err = replaceFile(name, text)
		}
		if err == nil && changed && !f.diff && !f.json && (name != standardInput || f.check) {
			_, err = fmt.Fprintln(t.out, name)
		}
		if err != nil {
			t.complain(err)
			failed = true
		}
	}
	if f.json {
		err = t.json(results)
	} else if len(all) > 0 {
		all.Print(t.err, t.color(t.err))
	}
	if err == nil && failed {
		err = &silentError{}
	}
	return err
}

func (t *terminal) formatSource(name string) ([]byte, error) {
	if name == standardInput {
		return io.ReadAll(io.LimitReader(t.in, files.Most+1))
	}
	source, _, err := files.Regular(name, files.Most)
	return source, err
}

// formattable lists the files of the paths, each once. Those of a folder are the manifests in it,
// because it may hold the YAML of other programs.
func (t *terminal) formattable(paths []string) (names []string, err error) {
	if paths, err = t.orHere(paths); err != nil {
		return nil, err
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			names = append(names, path)
			continue
		}
		found, _, err := manifestsHere(path + string(os.PathSeparator)) // which enters a symbolic link, too
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("the folder %s holds no saga and no effect", path)
		}
		names = append(names, found...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
