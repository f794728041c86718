package manifests

// Problem is one complaint about a manifest.
type Problem struct {
	File    *File
	Pos     Pos
	Warning bool   // does not stop anything
	Message string // what is wrong, and what to do
}

// Problems is a list of complaints, errors and warnings.
type Problems []Problem

// Failed tells whether any of them is an error.
func (ps Problems) Failed() bool {
	for _, p := range ps {
		if !p.Warning {
			return true
		}
	}
	return false
}
