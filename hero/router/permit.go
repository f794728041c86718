package router

import (
	"fmt"

	"edda/hero"
)

// permit decides whether the message's caller may send it from the context. Jobs
// and results are for those who may run jobs there; chat and mail for everybody
// whom the context knows. nil means yes.
func permit(c hero.Context, m hero.Message) error {
	switch m.MessageType {
	case hero.MessageJob:
		if !c.MayExecute(m.CallerID) {
			return denied(c, m, "is neither admin nor executor")
		}
		return permitJobs(c, m)
	case hero.MessageResult:
		if !c.MayExecute(m.CallerID) {
			return denied(c, m, "is neither admin nor executor")
		}
	case hero.MessageChat, hero.MessageMail:
		if !c.MayRead(m.CallerID) {
			return denied(c, m, "is no admin, executor or reader")
		}
	}
	return nil
}

// permitJobs: only an admin sends jobs in another actor's name.
func permitJobs(c hero.Context, m hero.Message) error {
	for _, j := range m.Job {
		if j.CallerID != 0 && j.CallerID != m.CallerID && !c.MayAdmin(m.CallerID) {
			return denied(c, m, fmt.Sprintf("may not send job %d of actor %d", j.ID, j.CallerID))
		}
	}
	return nil
}

// deniedPrefix begins the reason of every message that was not allowed.
const deniedPrefix = "permission denied"

func denied(c hero.Context, m hero.Message, why string) error {
	return fmt.Errorf(deniedPrefix+": actor %d %s in context %d", m.CallerID, why, c.ID)
}
