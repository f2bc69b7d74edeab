# Copies 24 MiB and forks a child that compares them. Prints the child's status, its own users, groups and whether the
# copies are the same, and then for each of its threads user, group and capabilities.
import os

memory = bytearray(os.urandom(24 << 20))
copy = bytes(memory)
child = os.fork()
if child == 0:
    os._exit(0 if memory == copy else 1)
print(os.waitpid(child, 0)[1], os.getresuid(), os.getresgid(), os.getgroups(), memory == copy)
for task in os.listdir('/proc/self/task'):
    fields = dict(line.split(':', 1) for line in open(f'/proc/self/task/{task}/status') if ':' in line)
    print(*(fields[name].split()[-1] for name in ['Uid', 'Gid', 'CapEff', 'CapPrm']))
