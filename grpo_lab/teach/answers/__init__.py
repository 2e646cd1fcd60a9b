"""What the checks ask and what they expect: small inputs, right answers, and the answers that usual mistakes give.

Worked by hand, or with plain Python; never with a concept of the package.
"""
