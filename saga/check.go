package saga

func (c *compiler) check() {}
