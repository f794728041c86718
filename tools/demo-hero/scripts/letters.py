time.sleep(0.5)
n = sum(c.isalpha() for line in get("text") for c in line)
put("letters", n)
done({"letters": n})
