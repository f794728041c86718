package manifests

import (
	"slices"
	"strings"
)

// Problem is one error or warning about a manifest.
type Problem struct {
	File    *File
	Pos     Pos
	Warning bool   // not an error
	Message string // what is wrong, and what to do
	Rule    Rule   // see [Problem.RuleID]
}

// Problems is a list of errors and warnings.
type Problems []Problem

// Limited returns at most [maxProblems] of each file, errors first, and says if there are more.
// The order stays.
func (ps Problems) Limited() Problems {
	left := map[*File]int{}
	chosen := make([]bool, len(ps))
	for _, warnings := range []bool{false, true} {
		for i, p := range ps {
			if p.Warning == warnings && left[p.File] < maxProblems {
				chosen[i] = true
				left[p.File]++
			}
		}
	}
	var out Problems
	noted := map[*File]bool{}
	for i, p := range ps {
		switch {
		case chosen[i]:
			out = append(out, p)
		case !noted[p.File]: // a warning, because the errors come first
			noted[p.File] = true
			out = append(out, Problem{File: p.File, Pos: p.Pos, Warning: true, Message: "too many problems: the rest is not shown"})
		}
	}
	return out
}

// Unique returns the problems in order, without repeated ones.
func (ps Problems) Unique() Problems {
	seen := make(map[Problem]bool, len(ps))
	var out Problems
	for _, p := range ps {
		if !seen[p] {
			seen[p] = true
			out = append(out, p)
		}
	}
	return out
}

// Failed reports whether any problem is an error.
func (ps Problems) Failed() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
}

// maxTypo bounds the length of compared words, because the distance is quadratic.
const maxTypo = 40

// Nearest returns the candidate that a word is most likely a misspelling of, or empty. It allows
// one change in three letters.
func Nearest(word string, candidates []string) string {
	if len(word) > maxTypo {
		return ""
	}
	best, least := "", max(1, len(word)/3)+1
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), strings.ToLower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance counts the insertions, deletions, replacements and swaps of neighbours between two
// words (optimal string alignment).
func distance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
