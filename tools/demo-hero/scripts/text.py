time.sleep(0.4)
put("text", ["verse %d of the old saga" % n for n in range(1, 13)])
done("12 verses")
