package manifests

// Problem is one error or warning about a manifest.
type Problem struct {
	File    *File
	Pos     Pos
	Warning bool   // does not stop anything
	Message string // what is wrong, and what to do
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
	told := map[*File]bool{}
	for i, p := range ps {
		switch {
		case chosen[i]:
			out = append(out, p)
		case !told[p.File]: // a warning: what stops anything is among the others
			told[p.File] = true
			out = append(out, Problem{File: p.File, Pos: p.Pos, Warning: true, Message: "too many problems: the rest is not shown"})
		}
	}
	return out
}

// Failed reports whether any problem is an error.
func (ps Problems) Failed() bool {
	for _, p := range ps {
		if !p.Warning {
			return true
		}
	}
	return false
}
