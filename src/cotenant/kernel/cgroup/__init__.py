"""Control groups: which matter, what each uses and suffers, and what that makes of the online and offline class.

v1 and v2 are two classes with one protocol; a hybrid machine is v1 with the pressure files of its v2 mount.
"""
