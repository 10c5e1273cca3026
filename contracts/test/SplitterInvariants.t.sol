// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../interfaces/IBatchSettlement.sol";
import {IFiatToken} from "./support/IFiatToken.sol";
import {SplitterTest} from "./support/SplitterTest.sol";

/// @notice Each recipient is paid its share, after any sequence of actions by buyers, keepers, strangers and the
/// token's issuer.
contract SplitterInvariantsTest is SplitterTest {
    SplitterMarket private _market;

    function setUp() public override {
        super.setUp();
        _market = new SplitterMarket();
        _market.setUp();
    }

    /// Names the contract whose functions the test runner calls at random.
    function targetContracts() external view returns (address[] memory targets) {
        targets = new address[](1);
        targets[0] = address(_market);
    }

    /// At every moment the shares are nine to one, except that each sweep rounds the platform's part down by less than
    /// one base unit, which the provider gets. The platform's part includes what the platform's own splitter holds.
    /// `waiting` is the money that hasn't been swept yet.
    function invariant_everyUnitIsSplit() public view {
        (uint256 provider, uint256 platform, uint256 waiting) = _market.balances();
        vm.assertGe(provider, 9 * platform, "rounded in the provider's favor");
        vm.assertLe(provider, 9 * platform + 9 * _market.sweeps(), "less than one unit per sweep");
        vm.assertEq(provider + platform + waiting, _market.paidIn(), "nothing is lost");
    }

    function invariant_noContractHoldsAnything() public view {
        (address settlement_, address factory_) = _market.contracts();
        IFiatToken token = _market.token();
        vm.assertEq(token.balanceOf(settlement_), 0, "BatchSettlement's balance");
        vm.assertEq(token.balanceOf(factory_), 0, "the factory's balance");
    }
}

/// @notice The steps that can happen to one splitter. The runner calls them in random order.
contract SplitterMarket is SplitterTest {
    uint256 public paidIn;
    /// Upper bound of the number of sweeps.
    uint256 public sweeps;
    uint256 private _payments;

    /// The runner calls every public function, including this one, so only the first call has an effect.
    function setUp() public override {
        if (address(usdc) != address(0)) return;
        super.setUp();
        payees[0] = _splitterOf(_usual());
    }

    function contracts() external view returns (address, address) {
        return (address(settlement), address(factory));
    }

    function token() external view returns (IFiatToken) {
        return usdc;
    }

    function balances() external view returns (uint256 provider, uint256 platform, uint256 waiting) {
        provider = usdc.balanceOf(PROVIDER) - 1;
        platform = usdc.balanceOf(PLATFORM) - 1 + usdc.balanceOf(_splitterOf(_platformOnly()));
        waiting = usdc.balanceOf(payees[0]);
    }

    function _platformOnly() private pure returns (uint256) {
        return _split(PLATFORM, 1, 0);
    }

    function settle(uint32 amount, bool alsoSweeps, uint64 gasLimit) external {
        Terms memory terms = _terms(_payments++);
        terms.amount = 1 + uint256(amount) % 200;
        usdc.mint(terms.from, terms.amount);
        IBatchSettlement.Authorization[] memory authorizations = new IBatchSettlement.Authorization[](1);
        authorizations[0] = _packOne(terms);
        uint256[] memory splits = new uint256[](alsoSweeps ? 1 : 0);
        if (alsoSweeps) splits[0] = _usual();
        ++sweeps;
        IBatchSettlement.Sweep memory asked =
            IBatchSettlement.Sweep(address(factory), gasLimit % 400_000, splits);
        try settlement.settleAuthorizations(_batch(), payees, authorizations, new bytes[](0), asked) {
            paidIn += terms.amount;
        } catch (bytes memory reason) {
            vm.assertEq(bytes4(reason), IBatchSettlement.NothingSettled.selector, "why a batch reverted");
        }
    }

    function give(uint8 amount) external {
        try usdc.mint(payees[0], uint256(amount) + 1) {
            paidIn += uint256(amount) + 1;
        } catch {}
    }

    function sweep(bool platformOnly, uint32 gasLimit) external {
        ++sweeps;
        try factory.sweep{gas: 30_000 + uint256(gasLimit) % 400_000}(
            address(usdc), PLATFORM, _list(platformOnly ? _platformOnly() : _usual())
        ) {} catch {}
    }

    function deploy(bool platformOnly) external {
        factory.deploy(platformOnly ? _platformOnly() : _usual(), PLATFORM);
    }

    function toggleBlacklist(uint256 index, bool blacklisted) external {
        address account = [PROVIDER, PLATFORM, payees[0], _splitterOf(_platformOnly())][index % 4];
        if (blacklisted) usdc.blacklist(account);
        else usdc.unBlacklist(account);
    }
}
