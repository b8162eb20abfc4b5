import os,sys
n=b""
while n[-1:]!=b"\n":n+=os.read(3,1)
n=int(n);s=b""
while len(s)<n:s+=os.read(3,n-len(s))
m=type(sys)("zwinger_driver");sys.modules[m.__name__]=m
exec(compile(s,"<zwinger>","exec"),m.__dict__)
for k in "nsm":del globals()[k]
sys.modules["zwinger_driver"].live()
