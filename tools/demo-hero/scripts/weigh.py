done({"weight": sum(get("gate" + job) for job in os.environ["GATES"].split())})
