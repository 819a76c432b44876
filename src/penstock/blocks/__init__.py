"""The building-block algebra: WindFlow's blocks as frozen data, and its rules as small functions.

`derive` turns a graph into a term; `count`, `notation` and `tree` read one. The term says
what runs beside what, what is fused and where rows are shuffled; engines lower it, each in its way.
"""

from penstock.blocks.derive import Derivation as Derivation
from penstock.blocks.derive import DerivationStep as DerivationStep
from penstock.blocks.derive import Feedback as Feedback
from penstock.blocks.derive import Input as Input
from penstock.blocks.derive import Node as Node
from penstock.blocks.derive import derive as derive
from penstock.blocks.operations import Matryoshka as Matryoshka
from penstock.blocks.operations import Split as Split
from penstock.blocks.operations import add as add
from penstock.blocks.operations import chain as chain
from penstock.blocks.operations import combine_with_last as combine_with_last
from penstock.blocks.operations import create as create
from penstock.blocks.operations import merge as merge
from penstock.blocks.operations import out_card as out_card
from penstock.blocks.operations import pipe_with_last as pipe_with_last
from penstock.blocks.operations import put_seed as put_seed
from penstock.blocks.operations import split as split
from penstock.blocks.terms import A2A as A2A
from penstock.blocks.terms import PBB as PBB
from penstock.blocks.terms import SBB as SBB
from penstock.blocks.terms import Comb as Comb
from penstock.blocks.terms import Composition as Composition
from penstock.blocks.terms import Container as Container
from penstock.blocks.terms import Counts as Counts
from penstock.blocks.terms import Distribution as Distribution
from penstock.blocks.terms import FanOut as FanOut
from penstock.blocks.terms import Function as Function
from penstock.blocks.terms import Kind as Kind
from penstock.blocks.terms import Operator as Operator
from penstock.blocks.terms import Pipe as Pipe
from penstock.blocks.terms import Seq as Seq
from penstock.blocks.terms import Splitting as Splitting
from penstock.blocks.terms import Term as Term
from penstock.blocks.terms import count as count
from penstock.blocks.terms import is_matryoshka as is_matryoshka
from penstock.blocks.terms import notation as notation
from penstock.blocks.terms import tree as tree
