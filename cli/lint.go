package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"edda/manifests"
	"edda/node"
	"edda/saga"
)

// paths is the Args function of commands that read manifests.
func paths() cobra.PositionalArgs { return args(cobra.MinimumNArgs(1)) }

// orHere returns the paths, or the manifests of the working directory if there are none.
func (t *terminal) orHere(paths []string) ([]string, error) {
	if len(paths) > 0 {
		return paths, nil
	}
	var s node.Settings
	if err := t.devHere(&s); err != nil {
		return nil, err
	}
	if s.Find != nil {
		return s.Find()
	}
	return s.Manifests, nil
}

func (t *terminal) lintCommand() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use: "lint [PATH...]", Short: "Check manifests; files, or folders of *.yaml",
		Long: `Check manifests and report all problems at once. Warnings do not fail the check.

-o json prints them as a list, -o sarif as SARIF 2.1.0, which code hosts show beside
the lines. Paths are as given: run it in the root of the repository. Each problem has
the id of its rule, which never changes.

Without a path it takes the manifests that edda dev takes.`,
		Example: "  edda lint manifests\n  edda lint manifests -o sarif > edda.sarif",
		RunE: func(_ *cobra.Command, paths []string) error {
			if !slices.Contains(lintOutputs(), output) {
				return usagef("--output %s: want one of %s", output, strings.Join(lintOutputs(), ", "))
			}
			paths, err := t.orHere(paths)
			if err != nil {
				return err
			}
			problems, err := node.Lint(paths)
			if err != nil {
				return err
			}
			if err := t.printLint(problems, output); err != nil {
				return err
			}
			if problems.Failed() {
				return &silentError{}
			}
			return nil
		},
	}
	c.Flags().StringVarP(&output, "output", "o", lintText, "text, json or sarif")
	offer(c, "output", lintOutputs())
	return c
}

func (t *terminal) testCommand() *cobra.Command {
	var verbose, update bool
	c := &cobra.Command{
		Use: "test [PATH...]", Short: "Run the tests of sagas; no server needed",
		Long: `Run the tests of sagas, in virtual time. A failing test is shown as a diff.

--update rewrites the expect: lists that differ, in their files, and shows what it
changed. Entries that match, comments and layout stay; inputs and end: are never
changed. It leaves a file alone that has errors, or whose lists it cannot rewrite
safely. Read the diff: it makes the tests agree with the saga, right or wrong.

Without a path it takes the manifests that edda dev takes.`,
		RunE: func(_ *cobra.Command, paths []string) error {
			paths, err := t.orHere(paths)
			if err != nil {
				return err
			}
			files, problems, err := manifests.ParseFiles(paths...)
			if err != nil {
				return err
			}
			if update {
				if err := t.updateTests(files, problems); err != nil {
					return err
				}
				if files, problems, err = manifests.ParseFiles(paths...); err != nil {
					return err
				}
			}
			return t.test(files, problems, verbose)
		},
	}
	c.Flags().BoolVar(&update, "update", false, "rewrite the expect: lists that differ, and show the changes")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "name the tests that pass too")
	return c
}

// test runs the tests of the sagas that compile. It fails if one does not compile.
func (t *terminal) test(files []*manifests.File, problems manifests.Problems, verbose bool) error {
	passed, failed := 0, 0
	for _, m := range sagasOf(files) {
		if broken(m.File, problems) {
			continue // a test of an incomplete manifest proves nothing
		}
		results, more := saga.RunTests(m, saga.Options{})
		problems = append(problems, more...)
		for _, r := range results {
			if r.Passed {
				passed++
			} else {
				failed++
			}
			t.printResult(m, r, verbose)
		}
	}
	errors := onlyErrors(problems)
	if len(errors) > 0 {
		errors.Print(t.err, t.color(t.err))
	}
	fmt.Fprintf(t.out, "%d passed, %d failed\n", passed, failed)
	switch {
	case failed > 0 || len(errors) > 0:
		return &silentError{}
	case passed == 0:
		return fmt.Errorf("no tests: give a saga a tests: section")
	}
	return nil
}

func sagasOf(files []*manifests.File) []*manifests.Saga {
	var out []*manifests.Saga
	for _, f := range files {
		out = append(out, f.Sagas...)
	}
	return out
}

func broken(f *manifests.File, ps manifests.Problems) bool {
	return slices.ContainsFunc(ps, func(p manifests.Problem) bool { return p.File == f && !p.Warning })
}

func onlyErrors(ps manifests.Problems) manifests.Problems {
	var out manifests.Problems
	for _, p := range ps {
		if !p.Warning {
			out = append(out, p)
		}
	}
	return out
}

func (t *terminal) printResult(m *manifests.Saga, r saga.TestResult, verbose bool) {
	switch {
	case !r.Passed:
		fmt.Fprintf(t.out, "FAIL %s: %s (%s:%d:%d)\n%s\n", r.Saga, r.Name, m.File.Name, r.Pos.Line, r.Pos.Column, r.Diff)
	case verbose:
		fmt.Fprintf(t.out, "ok   %s: %s\n", r.Saga, r.Name)
	}
}

func (t *terminal) schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of manifests, for editors",
		Example: "  edda schema > edda.schema.json\n  # then, on the first line of a manifest:\n  # yaml-language-server: $schema=edda.schema.json",
		Args:    args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := t.out.Write(manifests.Schema())
			return err
		},
	}
}
